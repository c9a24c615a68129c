//! What each state of a text looks out for, made once from a recipe.

use super::channels::Channels;
use super::marker::{Found, Marker, Markers};
use super::recipe::Recipe;

/// What a marker means where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Opens reasoning, with this pair of tags.
    Open(usize),
    /// Closes the reasoning that is open.
    Close,
    /// Closes reasoning, and none is open.
    StrayClose,
    /// Opens a block of calls: which format, and its step.
    Call(usize, usize),
    /// Begins the header of a message.
    Header,
    /// Ends a message.
    MessageEnd,
    /// Means nothing by itself.
    Noise,
    /// Opens a wrapper of the answer.
    WrapperOpen,
    /// Closes it.
    WrapperClose,
}

/// Markers and what they mean.
#[derive(Debug)]
pub(crate) struct Lookout {
    markers: Markers,
    roles: Vec<Role>,
}

impl Lookout {
    fn new(rows: Vec<(Marker, Role)>) -> Self {
        Self {
            roles: rows.iter().map(|(_, role)| *role).collect(),
            markers: Markers::new(rows.into_iter().map(|(marker, _)| marker)),
        }
    }

    /// The first marker in a text.
    pub(crate) fn find(&self, text: &str, last: bool) -> Found {
        self.markers.find(text.as_bytes(), last)
    }

    /// The marker right at the beginning of a text.
    pub(crate) fn at(&self, text: &str, last: bool) -> Found {
        self.markers.at(text.as_bytes(), last)
    }

    /// What one of them means.
    pub(crate) fn role(&self, which: usize) -> Role {
        self.roles[which]
    }
}

/// The lookouts of one text.
#[derive(Debug)]
pub(crate) struct Lookouts {
    /// In the answer.
    pub(crate) content: Lookout,
    /// In reasoning, by the pair of tags that opened it; the last one where nothing did.
    reasoning: Vec<Lookout>,
    /// The openers alone.
    pub(crate) openers: Lookout,
    /// Messages with headers.
    pub(crate) channels: Option<&'static Channels>,
    /// Whether the answer has wrappers.
    pub(crate) wrapped: bool,
}

impl Lookouts {
    pub(crate) fn new(recipe: &Recipe) -> Self {
        let pairs = recipe.reasoning.map_or(&[][..], |tags| tags.pairs);
        let channels = recipe.channels();
        let mut content = Vec::new();
        let mut openers = Vec::new();
        for (which, pair) in pairs.iter().enumerate() {
            openers.extend(pair.open.iter().map(|open| (*open, Role::Open(which))));
        }
        content.extend_from_slice(&openers);
        for pair in pairs {
            content.extend(pair.close.iter().map(|close| (*close, Role::StrayClose)));
        }
        let calls: Vec<(Marker, Role)> = recipe
            .tools
            .iter()
            .enumerate()
            .flat_map(|(which, format)| {
                format
                    .openers
                    .iter()
                    .map(move |(opener, step)| (Marker::exact(opener), Role::Call(which, *step)))
            })
            .collect();
        content.extend_from_slice(&calls);
        let headers = channels.map_or(&[][..], |channels| channels.headers);
        let ends = channels.map_or(&[][..], |channels| channels.ends);
        let all = |markers: &'static [&'static str], role: Role| {
            markers.iter().map(move |marker| (Marker::exact(marker), role))
        };
        content.extend(all(headers, Role::Header));
        content.extend(all(ends, Role::MessageEnd));
        for format in &recipe.tools {
            content.extend(all(format.noise, Role::Noise));
        }
        if let Some(tags) = recipe.reasoning {
            content.extend(all(tags.noise, Role::Noise));
            for (open, close) in tags.wrappers {
                content.push((Marker::exact(open), Role::WrapperOpen));
                content.push((Marker::exact(close), Role::WrapperClose));
            }
        }
        let inside = |pairs: &[super::reasoning::Pair]| {
            let mut rows: Vec<(Marker, Role)> = pairs
                .iter()
                .flat_map(|pair| pair.close.iter().map(|close| (*close, Role::Close)))
                .collect();
            rows.extend(all(ends, Role::Close));
            rows.extend(all(headers, Role::Header));
            if recipe.call_ends_reasoning {
                rows.extend_from_slice(&calls);
            }
            Lookout::new(rows)
        };
        let mut reasoning: Vec<Lookout> =
            pairs.iter().map(|pair| inside(std::slice::from_ref(pair))).collect();
        reasoning.push(inside(pairs));
        Self {
            content: Lookout::new(content),
            reasoning,
            openers: Lookout::new(openers),
            channels,
            wrapped: recipe.reasoning.is_some_and(|tags| !tags.wrappers.is_empty()),
        }
    }

    /// In reasoning that this pair of tags opened, or none.
    pub(crate) fn reasoning(&self, pair: Option<usize>) -> &Lookout {
        &self.reasoning[pair.unwrap_or(self.reasoning.len() - 1)]
    }
}
