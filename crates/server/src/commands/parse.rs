//! `throughline parse`: reads a model's raw text from stdin and prints its events as JSON lines.
//! The codec reads the text. This file chooses the recipe and writes the lines.

use std::io::{self, BufRead, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use throughline_codec::text::{
    self, Event, FAMILIES, Options, Reader, ReasoningFormat, Recipe, TAG_SETS, TOOL_FORMATS, Tools,
    ToolsError, UnknownName,
};

use super::remote::table;
use super::{Failure, print, print_note};
use crate::cli::{OnError, Parse, ReasoningForm};

/// The value that prints the known names instead of reading a text.
const LIST: &str = "list";

/// What a file of tools should contain.
const EXPECTED: &str = "expected a JSON list of tools, each `{name, description?, parameters}` or as OpenAI's API takes them";

/// Reads stdin to its end, or prints the known names.
pub fn run(options: &Parse) -> Result<(), Failure> {
    if let Some(names) = requested_list(options) {
        print(&names);
        return Ok(());
    }
    let recipe = recipe(options).map_err(|error| Failure::Usage(error.to_string()))?;
    let tools = match &options.tools {
        Some(path) => Some(Arc::new(read_tools(path)?)),
        None => None,
    };
    let settings = Options {
        tools,
        on_error: match options.on_error {
            OnError::Error => text::OnError::Error,
            OnError::Text => text::OnError::Text,
        },
        reasoning_format: match options.reasoning_format {
            ReasoningForm::Split => ReasoningFormat::Split,
            ReasoningForm::Raw => ReasoningFormat::Raw,
            ReasoningForm::None => ReasoningFormat::None,
        },
        ..Options::default()
    };
    if io::stdin().is_terminal() {
        print_note("reading from the terminal; Ctrl-D at the beginning of a line ends the text");
    }
    let mut lines = Lines::new(Reader::new(&recipe, settings), io::stdout().lock());
    match read(&mut io::stdin().lock(), options.chunk, &mut lines) {
        // The reader of our output has closed the pipe.
        Err(StreamError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(StreamError::Write(error)) => Err(Failure::Failed(format!("cannot write: {error}"))),
        Err(StreamError::Read(error)) => {
            Err(Failure::Failed(format!("cannot read the text: {error}")))
        }
        Ok(()) => Ok(()),
    }
}

/// The list that the options ask for, if any.
fn requested_list(options: &Parse) -> Option<String> {
    let is_list = |name: &str| matches_word(name, LIST);
    if options.family.as_deref().is_some_and(is_list) {
        return Some(families(options.json));
    }
    if options.reasoning.as_deref().is_some_and(is_list) {
        let names = TAG_SETS.iter().map(|set| set.name);
        return Some(families_by_name(options.json, "tag set", names, |family, name| {
            family.reasoning == Some(name)
        }));
    }
    if options.tool_format.iter().any(|name| is_list(name)) {
        let names = TOOL_FORMATS.iter().map(|format| format.name);
        return Some(families_by_name(options.json, "tool format", names, |family, name| {
            family.tools.contains(&name)
        }));
    }
    None
}

fn families(as_json: bool) -> String {
    if as_json {
        let rows = FAMILIES.iter().map(|family| {
            json!({
                "name": family.name,
                "models": family.models,
                "reasoning": family.reasoning,
                "implicit": family.implicit,
                "tools": family.tools,
            })
        });
        return json!(rows.collect::<Vec<_>>()).to_string();
    }
    let rows = FAMILIES.iter().map(|family| {
        let implicit = if family.implicit { ", implicit" } else { "" };
        vec![
            family.name.to_owned(),
            format!("{}{implicit}", family.reasoning.unwrap_or("-")),
            join(family.tools),
            join(family.models),
        ]
    });
    let head = ["family", "reasoning", "tool formats", "models whose name has"];
    table(&head, rows)
}

/// Names, and the families that use each one.
fn families_by_name<'a>(
    as_json: bool,
    head: &str,
    names: impl Iterator<Item = &'a str>,
    used: impl Fn(&text::Family, &str) -> bool,
) -> String {
    let rows = names.map(|name| {
        let families = FAMILIES.iter().filter(|family| used(family, name));
        (name, families.map(|family| family.name).collect::<Vec<_>>())
    });
    if as_json {
        let rows = rows.map(|(name, families)| json!({ "name": name, "families": families }));
        return json!(rows.collect::<Vec<_>>()).to_string();
    }
    let rows = rows.map(|(name, families)| vec![name.to_owned(), join(&families)]);
    table(&[head, "families"], rows)
}

fn join(names: &[&str]) -> String {
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}

/// The recipe of the family or the model. Parts that flags name replace the recipe's parts.
fn recipe(options: &Parse) -> Result<Recipe, UnknownName> {
    let reasoning = options.reasoning.as_deref();
    let formats: Vec<&str> = options.tool_format.iter().map(String::as_str).collect();
    let model = options.model.as_deref();
    let mut recipe = match options.family.as_deref() {
        None if model.is_none() => {
            // Only the parts that flags name. A text that begins inside reasoning has reasoning.
            let has_reasoning = formats.is_empty() || options.implicit_reasoning == Some(true);
            Recipe::named(has_reasoning.then_some("think"), &[])?
        }
        Some(family) if matches_word(family, "none") => Recipe::named(None, &[])?,
        Some(family) if !matches_word(family, "auto") => Recipe::family(family)?,
        _ => Recipe::for_model(model.unwrap_or_default()),
    };
    if reasoning.is_some() {
        let named = Recipe::named(reasoning, &[])?;
        recipe.reasoning = named.reasoning;
        recipe.implicit |= named.implicit;
        recipe.call_ends_reasoning |= named.call_ends_reasoning;
    }
    if !formats.is_empty() {
        recipe.tools = Recipe::named(None, &formats)?.tools;
    }
    if let Some(implicit) = options.implicit_reasoning {
        recipe.implicit = implicit;
        // A text that begins inside reasoning needs tags that end it.
        if implicit && reasoning.is_none() && recipe.reasoning.is_none() {
            recipe.reasoning = Recipe::named(Some("plain"), &[])?.reasoning;
        }
    }
    Ok(recipe)
}

/// Compares a word without regard to letter case.
fn matches_word(written: &str, word: &str) -> bool {
    written.trim().eq_ignore_ascii_case(word)
}

fn read_tools(path: &Path) -> Result<Tools, Failure> {
    let name = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::Usage(format!("cannot read the tools in `{name}`: {error}; {EXPECTED}"))
    })?;
    Tools::read(&bytes).map_err(|error| {
        let (line, column, what) = match error {
            ToolsError::Json(error) => {
                let message = error.to_string();
                // Our messages start with the position.
                let what = message.split(" at line ").next().unwrap_or_default().to_owned();
                (error.line(), error.column().max(1), what)
            }
            ToolsError::Shape(tool) => {
                let (line, column) = position_of(&bytes, tool);
                (line, column, format!("tool {} of the list has no name", tool + 1))
            }
        };
        Failure::Usage(format!("{name}:{line}:{column}: {what}\n  {EXPECTED}"))
    })
}

/// Line and column of an element in a JSON array.
fn position_of(list: &[u8], element: usize) -> (usize, usize) {
    let elements: Vec<&RawValue> = serde_json::from_slice(list).unwrap_or_default();
    let start = list.as_ptr().addr();
    let before = elements
        .get(element)
        .and_then(|raw| list.get(..raw.get().as_ptr().addr().checked_sub(start)?))
        .unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let column = String::from_utf8_lossy(&before[line_start..]).chars().count();
    (line, column + 1)
}

/// Why reading ended early.
enum StreamError {
    Read(io::Error),
    Write(io::Error),
}

/// Passes the text on in pieces of this size, or as it arrives.
fn read(
    input: &mut impl BufRead,
    chunk: Option<usize>,
    lines: &mut Lines<impl Write>,
) -> Result<(), StreamError> {
    let mut pending = Vec::new();
    loop {
        let bytes = match input.fill_buf() {
            Ok([]) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(StreamError::Read(error)),
        };
        let length = bytes.len();
        match chunk {
            None => lines.push(bytes),
            Some(_) => pending.extend_from_slice(bytes),
        }
        input.consume(length);
        if let Some(size @ 1..) = chunk {
            let whole = pending.len() - pending.len() % size;
            pending[..whole].chunks(size).for_each(|piece| lines.push(piece));
            pending.drain(..whole);
        }
        // A reader at the other end sees each line as soon as its text arrives.
        lines.flush()?;
    }
    if !pending.is_empty() {
        lines.push(&pending);
    }
    lines.finish()
}

/// The reader, and the output for its events.
struct Lines<W: Write> {
    reader: Reader,
    out: BufWriter<W>,
    /// The first write error. Nothing is written after it.
    failed: io::Result<()>,
}

impl<W: Write> Lines<W> {
    fn new(reader: Reader, out: W) -> Self {
        Self { reader, out: BufWriter::new(out), failed: Ok(()) }
    }

    fn push(&mut self, bytes: &[u8]) {
        let Self { reader, out, failed } = self;
        reader.push(bytes, |event| write(out, failed, event));
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        let Self { reader, out, failed } = self;
        reader.finish(|event| write(out, failed, event));
        self.flush()
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        std::mem::replace(&mut self.failed, Ok(()))
            .and_then(|()| self.out.flush())
            .map_err(StreamError::Write)
    }
}

fn write(out: &mut impl Write, failed: &mut io::Result<()>, event: Event<'_>) {
    if failed.is_ok() {
        *failed = serde_json::to_writer(&mut *out, &event)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n"));
    }
}
