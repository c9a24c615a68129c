//! Calls that name themselves: `{"name": .., "arguments": ..}`, alone or in an array, with keys in
//! any order.

use super::arguments::JsonArguments;
use super::scan::{JsonScanner, ScanResult};
use super::{MAX_HELD, MAX_NAME, Progress, Sink, leading_white_space};
use crate::json::decode;
use crate::search::special;

/// How a format writes such calls.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Keys for the name of the tool.
    pub name: &'static [&'static str],
    /// Keys for the arguments.
    pub arguments: &'static [&'static str],
    /// The key for the model's id of a call. The call then waits for it.
    pub id: Option<&'static str>,
    /// No marker comes before it: it must look like a call, and name an offered tool.
    pub bare: bool,
    /// Whether a call may come alone, without an array around it.
    pub alone: bool,
    /// `{"NAME": {..}}`: the key is the name.
    pub key_is_name: bool,
}

/// The usual keys.
pub(crate) const DEFAULT_KEYS: Keys = Keys {
    name: &["name"],
    arguments: &["arguments", "parameters"],
    id: None,
    bare: false,
    alone: true,
    key_is_name: false,
};

/// Reads one call, or an array of calls.
#[derive(Debug)]
pub(crate) struct JsonCalls {
    keys: &'static Keys,
    closers: &'static [&'static str],
    position: Position,
    /// Inside an array.
    in_list: bool,
    /// How many objects of the key `function` are open around the name.
    open_wrappers: usize,
    /// The name of calls that do not name themselves.
    default_name: Option<String>,
    /// A call was emitted.
    has_calls: bool,
    call: CallParts,
}

/// The known parts of the current call.
#[derive(Debug, Default)]
struct CallParts {
    name: Option<String>,
    id: Option<String>,
    /// Its arguments were emitted.
    done: bool,
    /// Arguments that came before the name.
    held: Option<String>,
}

#[derive(Debug)]
enum Position {
    Begin,
    /// In an array, before a call.
    Element,
    /// In an array, after a call.
    ElementEnd,
    KeyOrClose,
    Key,
    Colon(Key),
    Value(Key),
    ValueEnd,
    Arguments(JsonArguments),
    Held(JsonScanner),
    Skipped(JsonScanner),
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
    /// Creates a reader for calls with these keys. The closers end a call whose JSON is malformed.
    pub(crate) fn new(
        keys: &'static Keys,
        closers: &'static [&'static str],
        default_name: Option<String>,
    ) -> Self {
        Self {
            keys,
            closers,
            position: Position::Begin,
            in_list: false,
            open_wrappers: 0,
            default_name,
            has_calls: false,
            call: CallParts::default(),
        }
    }

    /// Reads the next text.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        loop {
            match &mut self.position {
                Position::Arguments(arguments) => {
                    match arguments.read(&text[at..], last, sink) {
                        Progress::Ended(used) | Progress::Called(used) => {
                            at += used;
                            self.call.done = true;
                            self.has_calls = true;
                            if arguments.ended_by_closer() {
                                return Progress::Ended(at);
                            }
                            self.position = Position::ValueEnd;
                            // A strict caller wants all of it, up to the last bracket.
                            if sink.is_tolerant() {
                                sink.end();
                                return Progress::Called(at);
                            }
                        }
                        progress => return progress.offset_by(at),
                    }
                }
                Position::Held(scanner) | Position::Skipped(scanner) => {
                    let scan = scanner.read(&text.as_bytes()[at..]);
                    let end = match scan {
                        ScanResult::All => text.len(),
                        ScanResult::Ended(used) => at + used,
                        ScanResult::Broken(used) => {
                            return Progress::Broken(at + used, "the call is not valid JSON");
                        }
                    };
                    if matches!(self.position, Position::Held(_))
                        && let Some(held) = &mut self.call.held
                    {
                        if held.len() + (end - at) > MAX_HELD {
                            return Progress::Broken(
                                at,
                                "the arguments before the name are too long",
                            );
                        }
                        held.push_str(&text[at..end]);
                    }
                    at = end;
                    if scan == ScanResult::All {
                        return Progress::More(at);
                    }
                    self.position = Position::ValueEnd;
                }
                _ => {}
            }
            at += leading_white_space(&text[at..]);
            let Some(&byte) = text.as_bytes().get(at) else {
                return Progress::More(at);
            };
            match self.token(text, at, byte, sink) {
                Token::Next(used) => at += used,
                // Half a key after a known call is no content.
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
        match (&self.position, byte) {
            (Position::Begin, b'[') => {
                self.in_list = true;
                self.position = Position::Element;
            }
            (Position::Begin, b'{') if self.keys.alone => self.position = Position::KeyOrClose,
            // After malformed arguments, brackets may be missing or too many.
            (Position::ValueEnd, b']') if self.is_done_in_list(sink) => {
                return Token::Return(Progress::Ended(at + 1));
            }
            (Position::ElementEnd, b'}') if self.in_list && sink.is_tolerant() => {}
            (Position::Key, b'{') if self.is_done_in_list(sink) => {
                self.call = CallParts::default();
                self.position = Position::KeyOrClose;
            }
            (Position::Element, b'{') => {
                self.call = CallParts::default();
                self.position = Position::KeyOrClose;
            }
            (Position::ElementEnd, b',') => self.position = Position::Element,
            (Position::ElementEnd, b']') => return Token::Return(Progress::Ended(at + 1)),
            (Position::KeyOrClose | Position::ValueEnd, b'}') => return self.close(at, sink),
            (Position::ValueEnd, b',') => self.position = Position::Key,
            (Position::Key | Position::KeyOrClose, b'"') => {
                let string = match short_string(&text[at..]) {
                    Ok(string) => string,
                    Err(incomplete) => return incomplete.at(at),
                };
                let key = decode(string.as_bytes());
                let key = match self.key(&key, sink) {
                    Ok(key) => key,
                    Err(why) => return broken(why),
                };
                self.position = Position::Colon(key);
                return Token::Next(string.len() + 2);
            }
            (Position::Colon(key), b':') => self.position = Position::Value(*key),
            (Position::Value(key), _) => return self.value(*key, text, at, byte, sink),
            // The call is complete, only its brackets are missing.
            (Position::ValueEnd, _) if self.call.done && sink.is_tolerant() => {
                return Token::Return(Progress::Ended(at));
            }
            (Position::ElementEnd, _) if sink.is_tolerant() => {
                return Token::Return(Progress::Ended(at));
            }
            _ => return broken("the call is not valid JSON"),
        }
        Token::Next(1)
    }

    /// Whether the arguments of a call in an array are complete, and errors are tolerated.
    fn is_done_in_list(&self, sink: &Sink<'_>) -> bool {
        self.in_list && self.call.done && sink.is_tolerant()
    }

    /// Classifies a key.
    fn key(&mut self, key: &str, sink: &mut Sink<'_>) -> Result<Key, &'static str> {
        if self.keys.key_is_name {
            if key.is_empty() {
                return Err("the name is empty");
            }
            self.call = CallParts { name: Some(key.to_owned()), ..CallParts::default() };
            sink.prepare(key, None);
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
            // Other JSON is the answer. Without known tools it must not wait.
            return Err("the JSON is no call");
        } else {
            Key::Other
        };
        Ok(key)
    }

    fn value(&mut self, key: Key, text: &str, at: usize, byte: u8, sink: &mut Sink<'_>) -> Token {
        match (key, byte) {
            (Key::Name | Key::Function, b'"') if self.call.name.is_none() => {
                let string = match short_string(&text[at..]) {
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
                self.position = Position::ValueEnd;
                if let Some(held) = self.call.held.take() {
                    sink.prepare(&name, self.call.id.as_deref());
                    // It was scanned when it was held, so it is one value.
                    let read = JsonArguments::new(&[]).read(&held, true, sink);
                    if let Progress::Broken(_, why) = read {
                        return Token::Return(Progress::Broken(at, why));
                    }
                    sink.end();
                    self.has_calls = true;
                    self.call.done = true;
                    self.call.name = Some(name);
                    return Token::Return(Progress::Called(at + used));
                }
                if !self.keys.bare {
                    sink.prepare(&name, self.call.id.as_deref());
                }
                self.call.name = Some(name);
                Token::Next(used)
            }
            (Key::Name, _) if self.call.name.is_none() => {
                Token::Return(Progress::Broken(at, "the name is not a string"))
            }
            (Key::Id, b'"') if self.call.id.is_none() => {
                let string = match short_string(&text[at..]) {
                    Ok(string) => string,
                    Err(incomplete) => return incomplete.at(at),
                };
                let id = decode(string.as_bytes());
                sink.set_id(&id);
                self.call.id = Some(id.into_owned());
                self.position = Position::ValueEnd;
                Token::Next(string.len() + 2)
            }
            (Key::Function, b'{') if self.call.name.is_none() => {
                self.open_wrappers += 1;
                self.position = Position::KeyOrClose;
                Token::Next(1)
            }
            (Key::Arguments, _) if !self.call.done && self.call.held.is_none() => {
                match &self.call.name {
                    Some(name) => {
                        if self.keys.bare {
                            sink.prepare(name, self.call.id.as_deref());
                        }
                        self.position = Position::Arguments(JsonArguments::new(self.closers));
                    }
                    None => {
                        self.call.held = Some(String::new());
                        self.position = Position::Held(JsonScanner::default());
                    }
                }
                Token::Next(0)
            }
            _ => {
                self.position = Position::Skipped(JsonScanner::default());
                Token::Next(0)
            }
        }
    }

    /// Handles the `}` of a call or of a wrapper.
    fn close(&mut self, at: usize, sink: &mut Sink<'_>) -> Token {
        if self.open_wrappers > 0 {
            self.open_wrappers -= 1;
            self.position = Position::ValueEnd;
            return Token::Next(1);
        }
        let call = std::mem::take(&mut self.call);
        self.position = Position::ElementEnd;
        let end = at + 1;
        let Some(name) = call.name.or_else(|| self.default_name.clone()) else {
            // One element that is no call does not break an array of calls.
            return Token::Return(if self.in_list && (self.has_calls || !self.keys.bare) {
                Progress::Stray(end)
            } else {
                Progress::Broken(end, "the call has no name")
            });
        };
        if !call.done {
            if self.keys.bare {
                return Token::Return(Progress::Broken(end, "the JSON is no call"));
            }
            if sink.current_name().is_none() {
                sink.prepare(&name, call.id.as_deref());
            }
            match call.held {
                Some(held) => {
                    let read = JsonArguments::new(&[]).read(&held, true, sink);
                    if let Progress::Broken(_, why) = read {
                        return Token::Return(Progress::Broken(end, why));
                    }
                }
                None => sink.write_arguments("{}"),
            }
        }
        self.has_calls = true;
        sink.end();
        Token::Return(if self.in_list { Progress::Called(end) } else { Progress::Ended(end) })
    }
}

enum Token {
    /// Continue after this many bytes.
    Next(usize),
    Return(Progress),
}

/// A string without its end.
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

/// The content of the short string at the start of a text, still escaped.
fn short_string(text: &str) -> Result<&str, Incomplete> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        at = special(bytes, at);
        match bytes.get(at) {
            _ if at > MAX_NAME => return Err(Incomplete::Broken("a name is too long")),
            Some(b'"') => return Ok(&text[1..at]),
            Some(b'\\') => at += 2,
            Some(_) => return Err(Incomplete::Broken("the call is not valid JSON")),
            None => return Err(Incomplete::Wait),
        }
    }
}
