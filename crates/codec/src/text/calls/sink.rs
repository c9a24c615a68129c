//! Where machines put what they read: numbers and ids are given here.

use std::collections::HashSet;

use super::super::event::Event;
use super::super::schema::Tools;

/// The calls of one text so far.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    /// How many calls have begun.
    begun: usize,
    /// How many have ended.
    ended: usize,
    /// A call whose name is known and whose arguments are not there yet: name and id. Until then it
    /// may still turn out to be none.
    ready: Option<(String, Option<String>)>,
    /// The name of the call that is open.
    open: Option<String>,
    /// What made ids begin with.
    prefix: String,
    /// Ids that the model gave.
    ids: HashSet<String>,
}

impl Numbering {
    /// Numbering for one text, whose own ids begin with this.
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
    }

    /// How many calls have begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// Whether a call has begun and not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The open call stays as it is: broken or cut.
    pub(crate) fn abandon(&mut self) {
        self.open = None;
        self.ready = None;
    }

    /// Takes the model's id, if it is the first of its name, or makes one. Those that were made are
    /// known by their number, so that only the model's are kept.
    fn id(&mut self, own: Option<&str>) -> String {
        if let Some(own) = own
            && !own.is_empty()
            && !self.was_made(own)
            && self.ids.insert(own.to_owned())
        {
            return own.to_owned();
        }
        let mut id = format!("{}{}", self.prefix, self.begun);
        // The model may have used even that.
        while self.ids.contains(&id) {
            id.push('_');
        }
        id
    }

    /// Whether an id looks like one that was made before.
    fn was_made(&self, id: &str) -> bool {
        let number = id.strip_prefix(&*self.prefix).map(|rest| rest.trim_end_matches('_'));
        number
            .and_then(|number| number.parse().ok())
            .is_some_and(|number: usize| number < self.begun)
    }
}

/// What a machine tells. It lives for one piece of text.
pub(crate) struct Sink<'a> {
    out: &'a mut dyn FnMut(Event<'_>),
    numbering: &'a mut Numbering,
    tools: Option<&'a Tools>,
    tolerant: bool,
}

impl<'a> Sink<'a> {
    /// A sink over these.
    pub(crate) fn new(
        out: &'a mut dyn FnMut(Event<'_>),
        numbering: &'a mut Numbering,
        tools: Option<&'a Tools>,
        tolerant: bool,
    ) -> Self {
        Self { out, numbering, tools, tolerant }
    }

    /// The tools that were offered; `None` where that is not known.
    pub(crate) fn tools(&self) -> Option<&'a Tools> {
        self.tools
    }

    /// Whether arguments that are broken are passed on as they are.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.tolerant
    }

    /// The name of the call that is open, or ready to be.
    pub(crate) fn open(&self) -> Option<&str> {
        let ready = self.numbering.ready.as_ref().map(|(name, _)| name);
        ready.or(self.numbering.open.as_ref()).map(String::as_str)
    }

    /// How many calls have ended.
    pub(crate) fn ended(&self) -> usize {
        self.numbering.ended
    }

    /// A call's name is known. It begins with its first arguments, or when it ends.
    pub(crate) fn ready(&mut self, name: &str, id: Option<&str>) {
        self.end();
        self.numbering.ready = Some((name.to_owned(), id.map(str::to_owned)));
    }

    /// The id of a call that is ready is known.
    pub(crate) fn identify(&mut self, id: &str) {
        if let Some((_, ready)) = &mut self.numbering.ready {
            ready.get_or_insert_with(|| id.to_owned());
        }
    }

    /// Begins the call that is ready, if there is one.
    pub(crate) fn begin(&mut self) {
        let Some((name, id)) = self.numbering.ready.take() else {
            return;
        };
        let id = self.numbering.id(id.as_deref());
        (self.out)(Event::CallStarted { index: self.numbering.begun, id: &id, name: &name });
        self.numbering.begun += 1;
        self.numbering.open = Some(name);
    }

    /// A call begins. One that was open ends.
    pub(crate) fn start(&mut self, name: &str, id: Option<&str>) {
        self.ready(name, id);
        self.begin();
    }

    /// The open call's arguments grow.
    pub(crate) fn arguments(&mut self, delta: &str) {
        if !delta.is_empty() {
            if self.numbering.ready.is_some() {
                self.begin();
            }
            (self.out)(Event::CallArguments {
                index: self.numbering.begun.saturating_sub(1),
                delta,
            });
        }
    }

    /// The open call, if there is one, is complete.
    pub(crate) fn end(&mut self) {
        if self.numbering.open.take().is_some() {
            self.numbering.ended += 1;
            (self.out)(Event::CallEnded { index: self.numbering.begun.saturating_sub(1) });
        }
    }
}
