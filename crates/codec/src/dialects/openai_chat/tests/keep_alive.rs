//! Keep-alive of streamed replies. Replies themselves are in `corpus/openai_chat/client_reply`.

use throughline_canonical::EndReason;

use super::*;

#[test]
fn keep_alive_is_a_comment_until_the_end() {
    let mut writer = OpenAiChat.session().reply_writer(&Request::default(), &identity());
    let mut out = Vec::new();
    writer.keep_alive(&mut out);
    assert!(out.starts_with(b":") && out.ends_with(b"\n\n"));
    out.clear();
    writer.push(&Event::Ended { reason: EndReason::Stop }, &mut out);
    let length = out.len();
    writer.keep_alive(&mut out);
    assert_eq!(out.len(), length);
}
