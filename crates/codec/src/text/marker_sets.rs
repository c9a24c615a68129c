//! The markers that each state of a text looks for, built once from a recipe.

use super::channels::Channels;
use super::marker::{Found, Marker, Markers};
use super::recipe::Recipe;

/// The meaning of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Opens reasoning, with the tag pair of this index.
    Open(usize),
    /// Ends the open reasoning and is then read as part of the answer.
    Interrupt,
    /// Closes the open reasoning.
    Close,
    /// Closes reasoning although none is open.
    StrayClose,
    /// Opens a block of calls: index of the format, and its first step.
    Call(usize, usize),
    /// Opens fenced code that may be a list of calls: index of the format, and its first step.
    Fence(usize, usize),
    /// Starts the header of a message.
    Header,
    /// Ends a message.
    MessageEnd,
    /// Has no meaning and is removed.
    Noise,
    /// Opens a wrapper around the answer.
    WrapperOpen,
    /// Closes a wrapper around the answer.
    WrapperClose,
}

/// Markers with their roles.
#[derive(Debug)]
pub(crate) struct MarkerSet {
    markers: Markers,
    roles: Vec<Role>,
}

impl MarkerSet {
    fn new(rows: Vec<(Marker, Role)>) -> Self {
        Self {
            roles: rows.iter().map(|(_, role)| *role).collect(),
            markers: Markers::new(rows.into_iter().map(|(marker, _)| marker)),
        }
    }

    /// Finds the first marker in a text.
    pub(crate) fn find(&self, text: &str, last: bool) -> Found {
        self.markers.find(text.as_bytes(), last)
    }

    /// Finds a marker at the start of a text.
    pub(crate) fn at(&self, text: &str, last: bool) -> Found {
        self.markers.at(text.as_bytes(), last)
    }

    /// The role of the marker with this index.
    pub(crate) fn role(&self, which: usize) -> Role {
        self.roles[which]
    }
}

/// The marker sets of all states.
#[derive(Debug)]
pub(crate) struct MarkerSets {
    /// For the answer.
    pub(crate) content: MarkerSet,
    /// For reasoning, by the tag pair that opened it. The last one is for reasoning without an
    /// opener.
    reasoning: Vec<MarkerSet>,
    /// Only the markers that open reasoning.
    pub(crate) openers: MarkerSet,
    /// The headers of messages.
    pub(crate) channels: Option<&'static Channels>,
    /// Whether the answer can have a wrapper.
    pub(crate) wrapped: bool,
}

impl MarkerSets {
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
        for (which, format) in recipe.tools.iter().enumerate() {
            if let Some(step) = format.fenced {
                content.push((Marker::exact("```"), Role::Fence(which, step)));
            }
        }
        let headers = channels.map_or(&[][..], |channels| channels.header_starts);
        let ends = channels.map_or(&[][..], |channels| channels.message_ends);
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
            let interrupts = recipe.reasoning.map_or(&[][..], |tags| tags.interrupts);
            rows.extend(all(interrupts, Role::Interrupt));
            if recipe.call_ends_reasoning {
                rows.extend_from_slice(&calls);
            }
            MarkerSet::new(rows)
        };
        let mut reasoning: Vec<MarkerSet> =
            pairs.iter().map(|pair| inside(std::slice::from_ref(pair))).collect();
        reasoning.push(inside(pairs));
        Self {
            content: MarkerSet::new(content),
            reasoning,
            openers: MarkerSet::new(openers),
            channels,
            wrapped: recipe.reasoning.is_some_and(|tags| !tags.wrappers.is_empty()),
        }
    }

    /// The markers for reasoning that this tag pair opened, or that no tag opened.
    pub(crate) fn reasoning(&self, pair: Option<usize>) -> &MarkerSet {
        &self.reasoning[pair.unwrap_or(self.reasoning.len() - 1)]
    }
}
