//! Tracks the items of a provider's reply: which are open, and which blocks they become.
//!
//! Reasoning is one block with blank lines between the parts of its summary. Each part of a message
//! is a block. A call is one block.

use std::borrow::Cow;
use std::collections::HashSet;

use throughline_canonical::{BlockStart, Delta, Event, Out};

use super::super::{NAME, PHASE, annotations};
use super::ItemPosition;
use super::item_parts::{ItemKind, ItemParts, Part, each_part, joined, member};
use crate::dialects::shared::block_emitter::BlockEmitter;
use crate::json::{JsonError, Span, each_element, inside, slice, text};

/// Maximum number of open items.
const MAX_OPEN_ITEMS: usize = 1024;

/// Whether an event adds text or repeats all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deltas {
    More,
    All,
}

/// All items of one reply.
#[derive(Debug, Default)]
pub(super) struct Items {
    open: Vec<Item>,
    /// Completed items, by index or id.
    done: HashSet<Key>,
    /// Several blocks may be open, so their items end them.
    pub(super) blocks: BlockEmitter,
    called: bool,
    refused: bool,
    in_full: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    Number(u64),
    Id(Box<[u8]>),
}

/// An open item.
#[derive(Debug)]
struct Item {
    kind: ItemKind,
    output_index: Option<u64>,
    id: Option<Box<[u8]>>,
    call_id: Option<Box<[u8]>>,
    phase: Option<String>,
    block: Option<OpenBlock>,
}

/// The open block of an item.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    index: u32,
    /// The kind of its content.
    kind: ItemKind,
    /// Index of the growing part.
    part: u64,
    /// Whether this part has grown.
    grew: bool,
    /// Whether any part has grown.
    ever: bool,
    /// Whether its phase was emitted.
    phase: bool,
    /// Number of emitted citations of this part.
    cited: usize,
}

impl Items {
    /// Whether a tool was called.
    pub(super) fn called(&self) -> bool {
        self.called
    }

    /// Whether the model declined.
    pub(super) fn refused(&self) -> bool {
        self.refused
    }

    /// Whether the reasoning itself was emitted, not a summary.
    pub(super) fn in_full(&self) -> bool {
        self.in_full
    }

    /// Starts an item. Returns whether there is room for it.
    pub(super) fn added(
        &mut self,
        data: &[u8],
        item: &Span,
        output_index: Option<u64>,
        out: Out<'_>,
    ) -> Result<bool, JsonError> {
        let parts = ItemParts::read(data, item)?;
        if self.open.len() >= MAX_OPEN_ITEMS {
            return Ok(false);
        }
        let position = parts.position(data, output_index);
        if self.find(parts.kind, &position).is_some() && position.is_exact()
            || self.is_done(&position)
        {
            return Ok(true);
        }
        self.keep_places(out);
        let mut item = Item::new(&parts, data, output_index);
        match parts.kind {
            ItemKind::Call => self.start_call(&mut item, &parts, data, out),
            ItemKind::Opaque => {
                self.start(&mut item, opaque(&parts), 0, out);
            }
            // Other items start with their first content.
            _ => {}
        }
        self.open.push(item);
        Ok(true)
    }

    /// Starts a part of a message.
    pub(super) fn part_added(&mut self, position: &ItemPosition<'_>, out: Out<'_>) {
        if let Some(at) = self.find(ItemKind::Message, position)
            && self.open[at].kind == ItemKind::Message
        {
            self.part(at, ItemKind::Message, position.part, out);
        }
    }

    /// Adds text to an item.
    pub(super) fn grow(
        &mut self,
        kind: ItemKind,
        deltas: Deltas,
        position: &ItemPosition<'_>,
        text: Cow<'_, str>,
        out: Out<'_>,
    ) {
        let Some(at) = self.find(kind, position).or_else(|| self.unannounced(kind, position))
        else {
            return;
        };
        if !self.open[at].kind.shares_item(kind) {
            return;
        }
        self.refused |= kind == ItemKind::Refusal;
        if !self.part(at, kind, position.part, out) {
            return;
        }
        self.in_full |= kind == ItemKind::Reasoning;
        let Some(block) = &mut self.open[at].block else {
            return;
        };
        if deltas == Deltas::All && block.grew || text.is_empty() {
            return;
        }
        (block.grew, block.ever) = (true, true);
        let delta = match kind {
            ItemKind::Message | ItemKind::Refusal => Delta::Text(text),
            ItemKind::Summary | ItemKind::Reasoning => Delta::Thinking(text),
            ItemKind::Call => Delta::ToolArguments(text),
            ItemKind::Opaque => return,
        };
        let index = block.index;
        out(Event::BlockDelta { index, delta });
    }

    /// Completes an item.
    pub(super) fn done(
        &mut self,
        data: &[u8],
        span: &Span,
        output_index: Option<u64>,
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let parts = ItemParts::read(data, span)?;
        let position = parts.position(data, output_index);
        let found = self.find(parts.kind, &position);
        let mut item = match found {
            Some(at) if self.open[at].kind == parts.kind => self.open.remove(at),
            _ if self.is_done(&position) => return Ok(()),
            // It was not announced.
            _ => Item::new(&parts, data, output_index),
        };
        if let Some(number) = output_index {
            self.done.insert(Key::Number(number));
        } else if let Some(id) = item.id.take().or(item.call_id.take()) {
            self.done.insert(Key::Id(id));
        }
        if let Some(phase) = &parts.phase {
            item.phase = Some(text(data, phase).into_owned());
        }
        match parts.kind {
            ItemKind::Reasoning => self.reasoning_done(&mut item, &parts, data, out)?,
            ItemKind::Message => self.message_done(&mut item, &parts, data, out)?,
            ItemKind::Call => self.call_done(&mut item, &parts, data, out),
            _ => {
                if item.block.is_none() {
                    self.start(&mut item, opaque(&parts), 0, out);
                }
                // The event contains the complete item.
                if let Some(OpenBlock { index, .. }) = item.block {
                    let delta = Delta::Opaque(String::from_utf8_lossy(slice(data, span)));
                    out(Event::BlockDelta { index, delta });
                }
            }
        }
        end(&mut item, out);
        Ok(())
    }

    /// Whether an item is open.
    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Completes a repeated item at the end of the reply, if it is still open.
    pub(super) fn done_if_open(
        &mut self,
        data: &[u8],
        item: &Span,
        number: u64,
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let parts = ItemParts::read(data, item)?;
        let position = parts.position(data, None);
        let found = self.open.iter().find(|item| match item.output_index {
            Some(open) => open == number,
            None => item.id.is_some() && item.id.as_deref() == position.item_id,
        });
        match found {
            Some(open) => {
                let number = open.output_index;
                self.done(data, item, number, out)
            }
            None => Ok(()),
        }
    }

    /// Ends all open items with the reply.
    pub(super) fn close(&mut self, out: Out<'_>) {
        for mut item in std::mem::take(&mut self.open) {
            end(&mut item, out);
        }
    }

    fn reasoning_done(
        &mut self,
        item: &mut Item,
        parts: &ItemParts<'_>,
        data: &[u8],
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let mut thought = joined(data, parts.summary.as_ref())?;
        if thought.is_empty() {
            thought = joined(data, parts.content.as_ref())?;
            self.in_full |= !thought.is_empty();
        }
        // The event contains the complete signature.
        let signature = member(data, parts.encrypted.as_ref());
        if item.block.is_none() && !(thought.is_empty() && signature.is_empty()) {
            self.start(item, thinking(), 0, out);
        }
        let Some(block) = item.block else {
            return Ok(());
        };
        let index = block.index;
        if !block.ever && !thought.is_empty() {
            out(Event::BlockDelta { index, delta: Delta::Thinking(thought) });
        }
        if !signature.is_empty() {
            out(Event::BlockDelta { index, delta: Delta::Signature(signature) });
        }
        Ok(())
    }

    fn message_done(
        &mut self,
        item: &mut Item,
        parts: &ItemParts<'_>,
        data: &[u8],
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let Some(content) = &parts.content else {
            return Ok(());
        };
        let emitted = item.block.filter(|block| block.ever || block.part > 0);
        if let Some(block) = emitted {
            // Some servers send citations only here.
            return each_part(data, content, |number, part| {
                if let Some(list) = &part.annotations
                    && number == block.part
                {
                    cite(data, list, block.index, block.cited, out);
                }
            });
        }
        each_part(data, content, |number, part| {
            let Part { word, words, annotations } = part;
            let refusal = word == b"refusal";
            self.refused |= refusal;
            if number > 0 || item.block.is_none() || refusal {
                end(item, out);
                let text = "".into();
                let block = match refusal {
                    true => BlockStart::Refusal { text },
                    false => BlockStart::Text { text },
                };
                self.start(item, block, number, out);
            }
            if let Some(block) = &item.block
                && !words.is_empty()
            {
                let delta = Delta::Text(words);
                out(Event::BlockDelta { index: block.index, delta });
            }
            if let (Some(block), Some(list)) = (&item.block, &annotations) {
                cite(data, list, block.index, block.cited, out);
            }
        })
    }

    /// Emits a citation.
    pub(super) fn cited(&mut self, position: &ItemPosition<'_>, annotation: &[u8], out: Out<'_>) {
        let found = self
            .find(ItemKind::Message, position)
            .filter(|at| self.open[*at].kind == ItemKind::Message);
        let Some(at) = found else {
            return;
        };
        self.part(at, ItemKind::Message, position.part, out);
        if let Some(block) = &mut self.open[at].block
            && let Some(delta) = annotations::read(annotation)
        {
            block.cited += 1;
            let index = block.index;
            out(Event::BlockDelta { index, delta });
        }
    }

    fn call_done(&mut self, item: &mut Item, parts: &ItemParts<'_>, data: &[u8], out: Out<'_>) {
        if item.block.is_none() {
            self.start_call(item, parts, data, out);
        }
        let arguments = member(data, parts.arguments.as_ref());
        if let Some(block) = &item.block
            && !block.grew
            && !arguments.is_empty()
        {
            let delta = Delta::ToolArguments(arguments);
            out(Event::BlockDelta { index: block.index, delta });
        }
    }

    /// Starts a call, once its name is known.
    fn start_call(&mut self, item: &mut Item, parts: &ItemParts<'_>, data: &[u8], out: Out<'_>) {
        let name = member(data, parts.name.as_ref());
        if name.is_empty() {
            return;
        }
        let mut id = member(data, parts.call_id.as_ref());
        if id.is_empty() {
            id = member(data, parts.id.as_ref());
        }
        if id.is_empty() {
            id = format!("call_{}", self.blocks.next).into();
        }
        self.called = true;
        self.start(item, BlockStart::ToolCall { id, name }, 0, out);
    }

    fn start(&mut self, item: &mut Item, block: BlockStart<'_>, part: u64, out: Out<'_>) {
        let phase = match (&item.phase, &block) {
            (Some(phase), BlockStart::Text { .. }) => Some(format!("{PHASE}{phase}")),
            _ => None,
        };
        let index = self.blocks.start(block, out);
        item.block = Some(OpenBlock {
            index,
            kind: item.kind,
            part,
            grew: false,
            ever: false,
            phase: phase.is_some(),
            cited: 0,
        });
        if let Some(phase) = phase {
            out(Event::BlockDelta { index, delta: Delta::Signature(phase.into()) });
        }
    }

    /// Continues with a part of an item. Returns whether it may grow.
    fn part(&mut self, at: usize, kind: ItemKind, part: u64, out: Out<'_>) -> bool {
        let item = &mut self.open[at];
        match (kind, &mut item.block) {
            (ItemKind::Call | ItemKind::Opaque, block) => return block.is_some(),
            (ItemKind::Summary | ItemKind::Reasoning, Some(block)) => {
                if !block.ever {
                    (block.kind, block.part) = (kind, part);
                }
                // If there are both a summary and reasoning, the first one is emitted.
                if block.kind != kind {
                    return false;
                }
                if block.part != part {
                    (block.part, block.grew) = (part, false);
                    let (index, delta) = (block.index, Delta::Thinking("\n\n".into()));
                    out(Event::BlockDelta { index, delta });
                }
                return true;
            }
            (ItemKind::Message | ItemKind::Refusal, Some(block)) if block.part == part => {
                return true;
            }
            _ => {}
        }
        // The item is removed while the number of blocks changes.
        let mut item = self.open.remove(at);
        end(&mut item, out);
        let block = match kind {
            ItemKind::Summary | ItemKind::Reasoning => thinking(),
            ItemKind::Refusal => BlockStart::Refusal { text: "".into() },
            _ => BlockStart::Text { text: "".into() },
        };
        self.start(&mut item, block, part, out);
        if let Some(block) = &mut item.block {
            block.kind = kind;
        }
        self.open.insert(at, item);
        true
    }

    /// Starts the block of empty reasoning before a later item starts.
    fn keep_places(&mut self, out: Out<'_>) {
        // Earlier items started when the next one came.
        if let Some(item) = self.open.last()
            && item.kind == ItemKind::Reasoning
            && item.block.is_none()
            && let Some(mut item) = self.open.pop()
        {
            self.start(&mut item, thinking(), 0, out);
            self.open.push(item);
        }
    }

    /// Finds the item of an event.
    fn find(&self, kind: ItemKind, position: &ItemPosition<'_>) -> Option<usize> {
        let find = |fits: &dyn Fn(&Item) -> bool| self.open.iter().rposition(fits);
        if let Some(number) = position.output_index {
            let found = find(&|item| item.output_index == Some(number));
            // Without indexes, only the id can identify the item.
            if found.is_some() || self.open.iter().any(|item| item.output_index.is_some()) {
                return found;
            }
        }
        let named = [position.item_id, position.call_id].into_iter().flatten().find_map(|id| {
            find(&|item| item.id.as_deref() == Some(id) || item.call_id.as_deref() == Some(id))
        });
        if named.is_some() || self.is_done(position) {
            return named;
        }
        // Some servers change the id of an item in every event.
        find(&|item| item.kind.shares_item(kind))
    }

    fn is_done(&self, position: &ItemPosition<'_>) -> bool {
        match (position.output_index, position.item_id.or(position.call_id)) {
            (Some(number), _) => self.done.contains(&Key::Number(number)),
            (None, Some(id)) => self.done.contains(&Key::Id(id.into())),
            (None, None) => false,
        }
    }

    /// Adds an item that was not announced. A call needs its name first.
    fn unannounced(&mut self, kind: ItemKind, position: &ItemPosition<'_>) -> Option<usize> {
        if kind == ItemKind::Call || self.is_done(position) || self.open.len() >= MAX_OPEN_ITEMS {
            return None;
        }
        self.open.push(Item {
            kind: match kind {
                ItemKind::Refusal => ItemKind::Message,
                ItemKind::Summary => ItemKind::Reasoning,
                kind => kind,
            },
            output_index: position.output_index,
            id: position.item_id.map(Into::into),
            call_id: None,
            phase: None,
            block: None,
        });
        Some(self.open.len() - 1)
    }
}

impl Item {
    /// A new item without content.
    fn new(parts: &ItemParts<'_>, data: &[u8], output_index: Option<u64>) -> Self {
        let bytes = |span: &Option<Span>| span.as_ref().map(|span| inside(data, span).into());
        let phase = parts.phase.as_ref();
        Self {
            kind: parts.kind,
            output_index,
            id: bytes(&parts.id),
            call_id: bytes(&parts.call_id),
            phase: phase.map(|span| text(data, span).into_owned()),
            block: None,
        }
    }
}

impl ItemPosition<'_> {
    fn is_exact(&self) -> bool {
        self.output_index.is_some()
    }
}

fn thinking() -> BlockStart<'static> {
    BlockStart::Thinking { text: "".into(), signature: "".into() }
}

/// Emits the citations that were not emitted yet.
fn cite(data: &[u8], list: &Span, index: u32, emitted: usize, out: Out<'_>) {
    let mut count = 0;
    // A malformed list has no citations.
    let _ = each_element(data, list.start, |_, span| {
        if let Some(delta) = annotations::read(slice(data, &span)) {
            if count >= emitted {
                out(Event::BlockDelta { index, delta });
            }
            count += 1;
        }
    });
}

fn opaque<'a>(parts: &ItemParts<'a>) -> BlockStart<'a> {
    BlockStart::Opaque { dialect: NAME.into(), name: parts.name_of_kind() }
}

/// Ends the open block of an item.
fn end(item: &mut Item, out: Out<'_>) {
    let Some(block) = item.block.take() else {
        return;
    };
    let index = block.index;
    if let Some(phase) = &item.phase
        && item.kind == ItemKind::Message
        && !block.phase
    {
        out(Event::BlockDelta { index, delta: Delta::Signature(format!("{PHASE}{phase}").into()) });
    }
    out(Event::BlockEnded { index });
}
