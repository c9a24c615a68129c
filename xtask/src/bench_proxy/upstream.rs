//! The fastest provider there is: it answers every POST with a reply that was
//! built beforehand, so that a proxy in front of it is what limits a run.
//! How requests are made is `load`'s.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::Failure;

/// How a reply leaves the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writes {
    /// In blocks of 16 KB, as from a provider that is faster than its network.
    Blocks,
    /// One write for each event, as from a provider that sends tokens when they come.
    SingleEvents,
    /// Three events, then silence until the client goes.
    Hold,
}

const BLOCK: usize = 16 * 1024;
/// No stream is held longer than this, whatever the client does.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// The model name tells the upstream what to do: it reaches every upstream unchanged.
pub(super) fn model_name(events: u32, writes: Writes) -> String {
    let mode = match writes {
        Writes::Blocks => "blocks",
        Writes::SingleEvents => "single",
        Writes::Hold => "hold",
    };
    format!("bench-{events}-{mode}")
}

fn read_model_name(body: &[u8]) -> Option<(u32, Writes)> {
    const MARK: &[u8] = b"bench-";
    let start = memchr::memmem::find(body, MARK)? + MARK.len();
    let rest = &body[start..];
    let end = memchr::memchr(b'"', rest)?;
    let (events, mode) = std::str::from_utf8(&rest[..end]).ok()?.split_once('-')?;
    let writes = match mode {
        "blocks" => Writes::Blocks,
        "single" => Writes::SingleEvents,
        "hold" => Writes::Hold,
        _ => return None,
    };
    Some((events.parse().ok()?, writes))
}

/// Runs the upstream on a thread of its own, which ends with the process.
pub(super) fn start() -> Result<SocketAddr, Failure> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async move {
            let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await else {
                return;
            };
            let Ok(address) = listener.local_addr() else {
                return;
            };
            if tell.send(address).is_err() {
                return;
            }
            let replies = Rc::new(Mutex::new(BTreeMap::new()));
            while let Ok((stream, _)) = listener.accept().await {
                let replies = Rc::clone(&replies);
                tokio::task::spawn_local(async move {
                    // A connection that breaks is the client's to notice.
                    let _ = serve(stream, &replies).await;
                });
            }
        });
    });
    told.recv().map_err(|_| "the upstream could not listen on a loopback port".to_owned())
}

/// A reply as the pieces that are written one by one.
type Pieces = Rc<Vec<Vec<u8>>>;
type Replies = Mutex<BTreeMap<(u32, Writes), Pieces>>;

async fn serve(mut stream: TcpStream, replies: &Replies) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BLOCK);
    while let Some(request) = read_request(&mut stream, &mut buffer).await? {
        let Some((events, writes)) = read_model_name(&request) else {
            // Questions that are not the bench's own: readiness, health.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await?;
            continue;
        };
        let pieces = Rc::clone(
            replies
                .lock()
                .await
                .entry((events, writes))
                .or_insert_with(|| Rc::new(reply(events, writes))),
        );
        for piece in pieces.iter() {
            stream.write_all(piece).await?;
        }
        if writes == Writes::Hold {
            let mut byte = [0_u8; 1];
            let _ = tokio::time::timeout(LONGEST_HOLD, stream.read(&mut byte)).await;
            return Ok(());
        }
    }
    Ok(())
}

/// One request, head and body; nothing when the peer has closed.
async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(length) = request_length(buffer) {
            let rest = buffer.split_off(length);
            return Ok(Some(std::mem::replace(buffer, rest)));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// The length of the first whole request in the buffer.
fn request_length(buffer: &[u8]) -> Option<usize> {
    let head = memchr::memmem::find(buffer, b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&buffer[..head]).to_ascii_lowercase();
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if value("transfer-encoding:").is_some() {
        // Bodies of the bench never hold these bytes otherwise.
        let end = memchr::memmem::find(&buffer[head..], b"\r\n0\r\n\r\n")?;
        return Some(head + end + 7);
    }
    let body: usize = value("content-length:").map_or(Some(0), |length| length.parse().ok())?;
    (buffer.len() >= head + body).then_some(head + body)
}

fn reply(events: u32, writes: Writes) -> Vec<Vec<u8>> {
    let events = reply_events(events);
    let mut pieces = vec![
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
          cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    ];
    match writes {
        Writes::Blocks => {
            let whole: Vec<u8> = events.concat();
            pieces.extend(whole.chunks(BLOCK).map(chunk));
        }
        Writes::SingleEvents => pieces.extend(events.iter().map(|event| chunk(event))),
        Writes::Hold => {
            pieces.extend(events.iter().take(3).map(|event| chunk(event)));
            return pieces;
        }
    }
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}

fn chunk(data: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

/// A reply of exactly `count` events: thinking, then text, in equal parts.
fn reply_events(count: u32) -> Vec<Vec<u8>> {
    let event = |name: &str, data: &str| format!("event: {name}\ndata: {data}\n\n").into_bytes();
    let model = model_name(count, Writes::Blocks);
    // Nine events frame the reply; the rest are deltas.
    let deltas = count.saturating_sub(9);
    let thinking = deltas / 2;
    let mut events = vec![
        event(
            "message_start",
            &format!(
                r#"{{"type":"message_start","message":{{"id":"msg_bench","type":"message","role":"assistant","model":"{model}","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":12,"output_tokens":1}}}}}}"#
            ),
        ),
        event(
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        ),
        event("ping", r#"{"type":"ping"}"#),
    ];
    for _ in 0..thinking {
        events.push(event(
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"and so it follows that "}}"#,
        ));
    }
    events.push(event(
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"YmVuY2ggc2lnbmF0dXJlIG9mIG5vYm9keQ=="}}"#,
    ));
    events.push(event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#));
    events.push(event(
        "content_block_start",
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
    ));
    for _ in thinking..deltas {
        events.push(event(
            "content_block_delta",
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"the answer in words, "}}"#,
        ));
    }
    events.push(event("content_block_stop", r#"{"type":"content_block_stop","index":1}"#));
    events.push(event(
        "message_delta",
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2000}}"#,
    ));
    events.push(event("message_stop", r#"{"type":"message_stop"}"#));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_has_as_many_events_as_asked() {
        for count in [9, 12, 2000] {
            assert_eq!(reply_events(count).len(), count as usize);
        }
    }

    #[test]
    fn request_is_read_by_length_or_by_chunks() {
        let plain = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST";
        assert_eq!(request_length(plain), Some(plain.len() - 4));
        assert_eq!(request_length(&plain[..plain.len() - 5]), None);
        let chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(request_length(chunked), Some(chunked.len()));
    }

    #[test]
    fn model_name_is_read_back() {
        for writes in [Writes::Blocks, Writes::SingleEvents, Writes::Hold] {
            let body = format!(r#"{{"model":"{}"}}"#, model_name(7, writes));
            assert_eq!(read_model_name(body.as_bytes()), Some((7, writes)));
        }
    }
}
