//! Calls that name themselves: `{"name": .., "arguments": ..}`, alone or in a list, keys in any
//! order.

use super::arguments::JsonArguments;
use super::scan::{Scan, Scanned};
use super::{HELD, NAME, Progress, Sink, white_space};
use crate::json::decode;
use crate::search::special;

/// How a format spells such calls.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The key of the tool's name.
    pub name: &'static [&'static str],
    /// The keys of the arguments.
    pub arguments: &'static [&'static str],
    /// The key of the model's id of a call, which then has to be waited for.
    pub id: Option<&'static str>,
    /// No marker stands before it: it must look like a call, and name a tool that was offered.
    pub bare: bool,
    /// Whether one call may stand alone, without a list around it.
    pub alone: bool,
    /// `{"NAME": {..}}`: the key is the name.
    pub key_is_name: bool,
}

/// The usual spelling.
pub(crate) const USUAL: Keys = Keys {
    name: &["name"],
    arguments: &["arguments", "parameters"],
    id: None,
    bare: false,
    alone: true,
    key_is_name: false,
};

/// One call, or a list of them.
#[derive(Debug)]
pub(crate) struct JsonCalls {
    keys: &'static Keys,
    closers: &'static [&'static str],
    place: Place,
    /// Inside a list.
    list: bool,
    /// How many objects of the key `function` are open around the name.
    wrapped: usize,
    /// The name of calls that do not name themselves.
    default: Option<String>,
    /// A call has been told.
    any: bool,
    call: Call,
}

/// What is known of the call that is being read.
#[derive(Debug, Default)]
struct Call {
    name: Option<String>,
    id: Option<String>,
    /// Its arguments have been given.
    done: bool,
    /// Arguments that came before the name.
    held: Option<String>,
}

#[derive(Debug)]
enum Place {
    Begin,
    /// In a list, before a call.
    Element,
    /// In a list, behind a call.
    ElementEnd,
    KeyOrClose,
    Key,
    Colon(Key),
    Value(Key),
    ValueEnd,
    Arguments(JsonArguments),
    Held(Scan),
    Skipped(Scan),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Id,
    Arguments,
    Function,
    Other,
}

impl JsonCalls {
    /// Calls in this spelling; the closers are what ends one whose JSON is broken.
    pub(crate) fn new(
        keys: &'static Keys,
        closers: &'static [&'static str],
        default: Option<String>,
    ) -> Self {
        Self {
            keys,
            closers,
            place: Place::Begin,
            list: false,
            wrapped: 0,
            default,
            any: false,
            call: Call::default(),
        }
    }

    /// Reads on.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            match &mut self.place {
                Place::Arguments(arguments) => {
                    match arguments.read(&text[at..], last, sink) {
                        Progress::Ended(used) | Progress::Called(used) => {
                            at += used;
                            self.call.done = true;
                            self.any = true;
                            if arguments.resynced() {
                                return Progress::Ended(at);
                            }
                            self.place = Place::ValueEnd;
                            // A strict caller wants the whole of it, to its last bracket.
                            if sink.is_tolerant() {
                                sink.end();
                                return Progress::Called(at);
                            }
                        }
                        progress => return progress.behind(at),
                    }
                }
                Place::Held(scan) | Place::Skipped(scan) => {
                    let scanned = scan.read(&text.as_bytes()[at..]);
                    let end = match scanned {
                        Scanned::All => text.len(),
                        Scanned::Ended(used) => at + used,
                        Scanned::Broken(used) => {
                            return Progress::Broken(at + used, "the call is not valid JSON");
                        }
                    };
                    if matches!(self.place, Place::Held(_))
                        && let Some(held) = &mut self.call.held
                    {
                        if held.len() + (end - at) > HELD {
                            return Progress::Broken(
                                at,
                                "the arguments before the name are too long",
                            );
                        }
                        held.push_str(&text[at..end]);
                    }
                    at = end;
                    if scanned == Scanned::All {
                        return Progress::More(at);
                    }
                    self.place = Place::ValueEnd;
                }
                _ => {}
            }
            at += white_space(&text[at..]);
            let Some(&byte) = text.as_bytes().get(at) else {
                return Progress::More(at);
            };
            match self.token(text, at, byte, sink) {
                Token::Next(used) => at += used,
                // Half a key of a call that is known is no text.
                Token::Return(Progress::More(_)) if last && self.call.done => {
                    return Progress::Called(text.len());
                }
                Token::Return(Progress::More(_)) if last && self.call.name.is_some() => {
                    return Progress::More(text.len());
                }
                Token::Return(progress) => return progress,
            }
        }
    }

    fn token(&mut self, text: &str, at: usize, byte: u8, sink: &mut Sink<'_>) -> Token {
        let broken = |why| Token::Return(Progress::Broken(at, why));
        match (&self.place, byte) {
            (Place::Begin, b'[') => {
                self.list = true;
                self.place = Place::Element;
            }
            (Place::Begin, b'{') if self.keys.alone => self.place = Place::KeyOrClose,
            (Place::Element, b'{') => {
                self.call = Call::default();
                self.place = Place::KeyOrClose;
            }
            (Place::ElementEnd, b',') => self.place = Place::Element,
            (Place::ElementEnd, b']') => return Token::Return(Progress::Ended(at + 1)),
            (Place::KeyOrClose | Place::ValueEnd, b'}') => return self.close(at, sink),
            (Place::ValueEnd, b',') => self.place = Place::Key,
            (Place::Key | Place::KeyOrClose, b'"') => {
                let string = match string(&text[at..]) {
                    Ok(string) => string,
                    Err(incomplete) => return incomplete.at(at),
                };
                let key = decode(string.as_bytes());
                let key = match self.key(&key, sink) {
                    Ok(key) => key,
                    Err(why) => return broken(why),
                };
                self.place = Place::Colon(key);
                return Token::Next(string.len() + 2);
            }
            (Place::Colon(key), b':') => self.place = Place::Value(*key),
            (Place::Value(key), _) => return self.value(*key, text, at, byte, sink),
            // The call is there, only its brackets are not.
            (Place::ValueEnd, _) if self.call.done && sink.is_tolerant() => {
                return Token::Return(Progress::Ended(at));
            }
            (Place::ElementEnd, _) if sink.is_tolerant() => {
                return Token::Return(Progress::Ended(at));
            }
            _ => return broken("the call is not valid JSON"),
        }
        Token::Next(1)
    }

    /// What a key stands for.
    fn key(&mut self, key: &str, sink: &mut Sink<'_>) -> Result<Key, &'static str> {
        if self.keys.key_is_name {
            if key.is_empty() {
                return Err("the name is empty");
            }
            self.call = Call { name: Some(key.to_owned()), ..Call::default() };
            sink.ready(key, None);
            return Ok(Key::Arguments);
        }
        let key = if self.keys.name.contains(&key) {
            Key::Name
        } else if self.keys.arguments.contains(&key) {
            Key::Arguments
        } else if self.keys.id == Some(key) {
            Key::Id
        } else if key == "function" {
            Key::Function
        } else if self.keys.bare
            && self.call.name.is_none()
            && self.call.held.is_none()
            && !matches!(key, "type" | "id")
            && sink.tools().is_none()
        {
            // Any other JSON is the answer, and where no tools are known it should not wait.
            return Err("the JSON is no call");
        } else {
            Key::Other
        };
        Ok(key)
    }

    fn value(&mut self, key: Key, text: &str, at: usize, byte: u8, sink: &mut Sink<'_>) -> Token {
        match (key, byte) {
            (Key::Name | Key::Function, b'"') if self.call.name.is_none() => {
                let string = match string(&text[at..]) {
                    Ok(string) => string,
                    Err(incomplete) => return incomplete.at(at),
                };
                let used = string.len() + 2;
                let name = decode(string.as_bytes()).into_owned();
                if name.is_empty() {
                    return Token::Return(Progress::Broken(at, "the name is empty"));
                }
                if self.keys.bare && sink.tools().is_some_and(|tools| !tools.declares(&name)) {
                    return Token::Return(Progress::Broken(at, "no tool of this name was offered"));
                }
                self.place = Place::ValueEnd;
                if let Some(held) = self.call.held.take() {
                    sink.ready(&name, self.call.id.as_deref());
                    // Scanned when it was held, so that it is one value.
                    let read = JsonArguments::new(&[]).read(&held, true, sink);
                    if let Progress::Broken(_, why) = read {
                        return Token::Return(Progress::Broken(at, why));
                    }
                    sink.end();
                    self.any = true;
                    self.call.done = true;
                    self.call.name = Some(name);
                    return Token::Return(Progress::Called(at + used));
                }
                if !self.keys.bare {
                    sink.ready(&name, self.call.id.as_deref());
                }
                self.call.name = Some(name);
                Token::Next(used)
            }
            (Key::Name, _) if self.call.name.is_none() => {
                Token::Return(Progress::Broken(at, "the name is not a string"))
            }
            (Key::Id, b'"') if self.call.id.is_none() => {
                let string = match string(&text[at..]) {
                    Ok(string) => string,
                    Err(incomplete) => return incomplete.at(at),
                };
                let id = decode(string.as_bytes());
                sink.identify(&id);
                self.call.id = Some(id.into_owned());
                self.place = Place::ValueEnd;
                Token::Next(string.len() + 2)
            }
            (Key::Function, b'{') if self.call.name.is_none() => {
                self.wrapped += 1;
                self.place = Place::KeyOrClose;
                Token::Next(1)
            }
            (Key::Arguments, _) if !self.call.done && self.call.held.is_none() => {
                match &self.call.name {
                    Some(name) => {
                        if self.keys.bare {
                            sink.ready(name, self.call.id.as_deref());
                        }
                        self.place = Place::Arguments(JsonArguments::new(self.closers));
                    }
                    None => {
                        self.call.held = Some(String::new());
                        self.place = Place::Held(Scan::default());
                    }
                }
                Token::Next(0)
            }
            _ => {
                self.place = Place::Skipped(Scan::default());
                Token::Next(0)
            }
        }
    }

    /// A `}` of ours.
    fn close(&mut self, at: usize, sink: &mut Sink<'_>) -> Token {
        if self.wrapped > 0 {
            self.wrapped -= 1;
            self.place = Place::ValueEnd;
            return Token::Next(1);
        }
        let call = std::mem::take(&mut self.call);
        self.place = Place::ElementEnd;
        let end = at + 1;
        let Some(name) = call.name.or_else(|| self.default.clone()) else {
            // One element that is no call does not spoil a list of calls.
            return Token::Return(if self.list && (self.any || !self.keys.bare) {
                Progress::Stray(end)
            } else {
                Progress::Broken(end, "the call has no name")
            });
        };
        if !call.done {
            if self.keys.bare {
                return Token::Return(Progress::Broken(end, "the JSON is no call"));
            }
            if sink.open().is_none() {
                sink.ready(&name, call.id.as_deref());
            }
            match call.held {
                Some(held) => {
                    JsonArguments::new(&[]).read(&held, true, sink);
                }
                None => sink.arguments("{}"),
            }
        }
        self.any = true;
        sink.end();
        Token::Return(if self.list { Progress::Called(end) } else { Progress::Ended(end) })
    }
}

enum Token {
    /// So many bytes on.
    Next(usize),
    Return(Progress),
}

/// A string whose end is not there.
enum Incomplete {
    Wait,
    Broken(&'static str),
}

impl Incomplete {
    fn at(&self, at: usize) -> Token {
        Token::Return(match self {
            Self::Wait => Progress::More(at),
            Self::Broken(why) => Progress::Broken(at, why),
        })
    }
}

/// The inside of the short string that begins the text, still escaped.
fn string(text: &str) -> Result<&str, Incomplete> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at = special(bytes, at);
        match bytes.get(at) {
            _ if at > NAME => return Err(Incomplete::Broken("a name is too long")),
            Some(b'"') => return Ok(&text[1..at]),
            Some(b'\\') => at += 2,
            Some(_) => return Err(Incomplete::Broken("the call is not valid JSON")),
            None => return Err(Incomplete::Wait),
        }
    }
}
