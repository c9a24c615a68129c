//! The output of the machines. Gives each call its number and its id.

use std::collections::HashSet;

use super::super::event::Event;
use super::super::schema::Tools;

/// The calls of one text so far.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    /// How many calls have started.
    started: usize,
    /// How many calls have ended.
    ended: usize,
    /// How many calls were left incomplete, and the block continued.
    abandoned: usize,
    /// Name and id of a call whose arguments have not started. Until they do, it may still turn out
    /// to be no call.
    prepared: Option<(String, Option<String>)>,
    /// The name of the open call.
    open: Option<String>,
    /// Prefix of generated ids.
    prefix: String,
    /// Ids that the model wrote.
    ids: HashSet<String>,
}

impl Numbering {
    /// Creates the numbering for one text. Generated ids start with `prefix`.
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), ..Self::default() }
    }

    /// How many calls have started.
    pub(crate) fn started(&self) -> usize {
        self.started
    }

    /// Whether a call has started and not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether a call has started and was never completed.
    pub(crate) fn has_incomplete(&self) -> bool {
        self.started > self.ended
    }

    /// Leaves the open call incomplete: it is broken or cut.
    pub(crate) fn abandon(&mut self) {
        self.open = None;
        self.prepared = None;
    }

    /// Uses the model's id, unless it repeats an earlier one, or generates an id. Generated ids
    /// follow from their number, so only the model's are stored.
    fn id(&mut self, model_id: Option<&str>) -> String {
        if let Some(model_id) = model_id
            && !model_id.is_empty()
            && !self.is_generated(model_id)
            && self.ids.insert(model_id.to_owned())
        {
            return model_id.to_owned();
        }
        let mut id = format!("{}{}", self.prefix, self.started);
        // The model may have used even that one.
        while self.ids.contains(&id) {
            id.push('_');
        }
        id
    }

    /// Whether an id equals one that was generated before.
    fn is_generated(&self, id: &str) -> bool {
        let number = id.strip_prefix(&*self.prefix).map(|rest| rest.trim_end_matches('_'));
        number
            .and_then(|number| number.parse().ok())
            .is_some_and(|number: usize| number < self.started)
    }
}

/// Where a machine writes its output. Lives for one piece of text.
pub(crate) struct Sink<'a> {
    out: &'a mut dyn FnMut(Event<'_>),
    numbering: &'a mut Numbering,
    tools: Option<&'a Tools>,
    tolerant: bool,
}

impl<'a> Sink<'a> {
    /// Creates a sink.
    pub(crate) fn new(
        out: &'a mut dyn FnMut(Event<'_>),
        numbering: &'a mut Numbering,
        tools: Option<&'a Tools>,
        tolerant: bool,
    ) -> Self {
        Self { out, numbering, tools, tolerant }
    }

    /// The offered tools. `None` if unknown.
    pub(crate) fn tools(&self) -> Option<&'a Tools> {
        self.tools
    }

    /// Whether malformed arguments are passed on unchanged.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.tolerant
    }

    /// The name of the open or prepared call.
    pub(crate) fn current_name(&self) -> Option<&str> {
        let prepared = self.numbering.prepared.as_ref().map(|(name, _)| name);
        prepared.or(self.numbering.open.as_ref()).map(String::as_str)
    }

    /// How many calls have ended or were left incomplete.
    pub(crate) fn ended_count(&self) -> usize {
        self.numbering.ended + self.numbering.abandoned
    }

    /// The name of a call is known. The call starts with its first arguments, or when it ends.
    pub(crate) fn prepare(&mut self, name: &str, id: Option<&str>) {
        self.end();
        self.numbering.prepared = Some((name.to_owned(), id.map(str::to_owned)));
    }

    /// The id of a prepared call is known.
    pub(crate) fn set_id(&mut self, id: &str) {
        if let Some((_, prepared_id)) = &mut self.numbering.prepared {
            prepared_id.get_or_insert_with(|| id.to_owned());
        }
    }

    /// Starts the prepared call, if there is one.
    pub(crate) fn start_prepared(&mut self) {
        let Some((name, id)) = self.numbering.prepared.take() else {
            return;
        };
        let id = self.numbering.id(id.as_deref());
        (self.out)(Event::CallStarted { index: self.numbering.started, id: &id, name: &name });
        self.numbering.started += 1;
        self.numbering.open = Some(name);
    }

    /// Starts a call. Ends the open one.
    pub(crate) fn start(&mut self, name: &str, id: Option<&str>) {
        self.prepare(name, id);
        self.start_prepared();
    }

    /// Adds to the arguments of the open call.
    pub(crate) fn write_arguments(&mut self, delta: &str) {
        if !delta.is_empty() {
            if self.numbering.prepared.is_some() {
                self.start_prepared();
            }
            (self.out)(Event::CallArguments {
                index: self.numbering.started.saturating_sub(1),
                delta,
            });
        }
    }

    /// Leaves the open call incomplete, because its arguments are malformed.
    pub(crate) fn abandon(&mut self) {
        self.numbering.abandoned += usize::from(self.numbering.is_open());
        self.numbering.abandon();
    }

    /// Ends the open call, if there is one.
    pub(crate) fn end(&mut self) {
        if self.numbering.open.take().is_some() {
            self.numbering.ended += 1;
            (self.out)(Event::CallEnded { index: self.numbering.started.saturating_sub(1) });
        }
    }
}
