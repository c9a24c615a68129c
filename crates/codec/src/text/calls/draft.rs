//! One call whose name and arguments come in any order: what is known of it, and what was told.

use super::{HELD, Sink};

/// A call that is being read.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Whether the call begins with its arguments, not with its name; then it must have some.
    waits_for_arguments: bool,
    name: Option<String>,
    /// Whether it was told that the call began.
    told: bool,
    /// Whether the arguments are complete.
    complete: bool,
    /// Arguments that came before the name.
    held: String,
    too_long: bool,
}

impl Draft {
    /// A call of which nothing is known.
    pub(crate) const fn new(waits_for_arguments: bool) -> Self {
        Self {
            waits_for_arguments,
            name: None,
            told: false,
            complete: false,
            held: String::new(),
            too_long: false,
        }
    }

    /// Whether the name is known.
    pub(crate) const fn has_name(&self) -> bool {
        self.name.is_some()
    }

    /// Whether the arguments are complete.
    pub(crate) const fn has_arguments(&self) -> bool {
        self.complete
    }

    /// The name is known now.
    pub(crate) fn name(&mut self, name: &str, sink: &mut Sink<'_>) {
        self.name = Some(name.to_owned());
        if self.complete {
            self.begin(sink);
            sink.arguments(&std::mem::take(&mut self.held));
            sink.end();
        } else if !self.waits_for_arguments {
            self.begin(sink);
        }
    }

    /// The arguments grow.
    pub(crate) fn arguments(&mut self, delta: &str, sink: &mut Sink<'_>) {
        self.begin(sink);
        if self.told {
            sink.arguments(delta);
        } else {
            hold(delta, &mut self.held, HELD, &mut self.too_long);
        }
    }

    /// The arguments are complete.
    pub(crate) fn arguments_ended(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        if self.too_long {
            return Err("the arguments before the name are too long");
        }
        if self.told {
            sink.end();
        }
        self.complete = true;
        Ok(())
    }

    /// The call is complete; the next one may come.
    pub(crate) fn ended(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        if self.name.is_none() {
            return Err("a call has no name");
        }
        if !self.complete && self.waits_for_arguments {
            return Err("a call has no arguments");
        }
        if !self.complete {
            sink.arguments("{}");
            sink.end();
        }
        *self = Self::new(self.waits_for_arguments);
        Ok(())
    }

    /// Tells that the call began, if its name is known and that was not told.
    fn begin(&mut self, sink: &mut Sink<'_>) {
        if let (Some(name), false) = (&self.name, self.told) {
            sink.start(name, None);
            self.told = true;
        }
    }
}

/// Holds text up to a limit. What is longer is never used, so that some of it may be lost.
pub(crate) fn hold(delta: &str, held: &mut String, most: usize, too_long: &mut bool) {
    if held.len() + delta.len() > most {
        *too_long = true;
    } else {
        held.push_str(delta);
    }
}
