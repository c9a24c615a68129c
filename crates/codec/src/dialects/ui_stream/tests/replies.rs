//! Whole replies and keep-alive. Other replies are in `corpus/ui_stream/client_reply`.

use throughline_canonical::{BlockStart, Delta, EndReason, Fold};

use super::*;

fn started(index: u32, block: BlockStart<'static>) -> Event<'static> {
    Event::BlockStarted { index, block }
}

fn grew(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::BlockDelta { index, delta }
}

fn ended(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

#[test]
fn a_whole_reply_equals_its_stream() {
    let events = [
        Event::MessageStarted { id: "m".into(), model: "x".into() },
        started(0, BlockStart::Thinking { text: "".into(), signature: "".into() }),
        grew(0, Delta::Thinking("hm".into())),
        grew(0, Delta::Signature("S".into())),
        Event::BlockEnded { index: 0 },
        started(1, BlockStart::Text { text: "".into() }),
        grew(1, Delta::Text("yes".into())),
        Event::BlockEnded { index: 1 },
        ended(EndReason::Stop),
    ];
    let mut fold = Fold::default();
    events.iter().for_each(|event| fold.push(event));
    let writer = UiStream.session().reply_writer(&Request::default(), &identity());
    let whole = String::from_utf8(writer.whole(fold.reply())).unwrap();
    assert_eq!(whole, write(&Request::default(), &events));
}

#[test]
fn keep_alive_is_a_comment() {
    let mut writer = UiStream.session().reply_writer(&Request::default(), &identity());
    let mut out = Vec::new();
    writer.keep_alive(&mut out);
    assert_eq!(out, b": keep-alive\n\n");
    writer.push(&ended(EndReason::Stop), &mut out);
    let length = out.len();
    writer.keep_alive(&mut out);
    assert_eq!(out.len(), length, "after the end");
}
