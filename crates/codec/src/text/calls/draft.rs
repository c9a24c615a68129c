//! One call whose name and arguments come in any order.

use super::{MAX_HELD, Sink};

/// A call that is being read.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Whether the call starts with its arguments, not with its name. Then it must have arguments.
    waits_for_arguments: bool,
    name: Option<String>,
    /// Whether the start of the call was emitted.
    started: bool,
    /// Whether the arguments are complete.
    complete: bool,
    /// Arguments that came before the name.
    held: String,
    too_long: bool,
}

impl Draft {
    /// Creates a call without known parts.
    pub(crate) const fn new(waits_for_arguments: bool) -> Self {
        Self {
            waits_for_arguments,
            name: None,
            started: false,
            complete: false,
            held: String::new(),
            too_long: false,
        }
    }

    /// Whether the name is known.
    pub(crate) const fn has_name(&self) -> bool {
        self.name.is_some()
    }

    /// The arguments are malformed. If the call has started, leaves it incomplete and returns true.
    pub(crate) fn abandon(&mut self, sink: &mut Sink<'_>) -> bool {
        if self.started {
            sink.abandon();
            self.complete = true;
        }
        self.started
    }

    /// Whether the arguments are complete.
    pub(crate) const fn has_arguments(&self) -> bool {
        self.complete
    }

    /// Sets the name.
    pub(crate) fn set_name(&mut self, name: &str, sink: &mut Sink<'_>) {
        self.name = Some(name.to_owned());
        if self.complete {
            self.begin(sink);
            sink.write_arguments(&std::mem::take(&mut self.held));
            sink.end();
        } else if !self.waits_for_arguments {
            self.begin(sink);
        }
    }

    /// Adds to the arguments.
    pub(crate) fn push_arguments(&mut self, delta: &str, sink: &mut Sink<'_>) {
        self.begin(sink);
        if self.started {
            sink.write_arguments(delta);
        } else {
            push_limited(delta, &mut self.held, MAX_HELD, &mut self.too_long);
        }
    }

    /// Ends the arguments.
    pub(crate) fn finish_arguments(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        if self.too_long {
            return Err("the arguments before the name are too long");
        }
        if self.started {
            sink.end();
        }
        self.complete = true;
        Ok(())
    }

    /// Ends the call. The next one may follow.
    pub(crate) fn finish(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        if self.name.is_none() {
            return Err("a call has no name");
        }
        if !self.complete && self.waits_for_arguments {
            return Err("a call has no arguments");
        }
        if !self.complete {
            sink.write_arguments("{}");
            sink.end();
        }
        *self = Self::new(self.waits_for_arguments);
        Ok(())
    }

    /// Emits the start of the call, if its name is known and it has not started.
    fn begin(&mut self, sink: &mut Sink<'_>) {
        if let (Some(name), false) = (&self.name, self.started) {
            sink.start(name, None);
            self.started = true;
        }
    }
}

/// Appends text up to a limit. Text over the limit is never used, so it may be lost.
pub(crate) fn push_limited(delta: &str, held: &mut String, max: usize, too_long: &mut bool) {
    if held.len() + delta.len() > max {
        *too_long = true;
    } else {
        held.push_str(delta);
    }
}
