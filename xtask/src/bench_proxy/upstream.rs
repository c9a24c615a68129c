//! A provider that costs almost nothing: its replies are built beforehand, so that the proxy in
//! front of it limits a run.

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
pub(crate) enum Writes {
    /// In blocks of 16 KB, each one HTTP chunk: a provider that is faster than its network.
    Blocks,
    /// One write for each event: a provider that sends each token at once.
    SingleEvents,
    /// One HTTP chunk for each event, but many chunks in one write: a provider flushes each
    /// token, and a proxy in front of it collects them.
    ManyChunks,
    /// One event after another at this rate per second, until the client closes.
    Slow(u32),
    /// Three events, then silence until the client closes.
    Hold,
    /// A whole reply as JSON: text alone.
    Whole,
    /// A whole reply as JSON: a signed thinking block, then text.
    WholeThinking,
}

const BLOCK: usize = 16 * 1024;
/// One write of many chunks; a segment on the loopback holds as much.
const SEGMENT: usize = 64 * 1024;
/// No stream stays open longer than this.
const MAX_OPEN: Duration = Duration::from_secs(60);

/// The model name that makes the upstream write this reply. Proxies do not change it.
pub(crate) fn model_name(events: u32, writes: Writes) -> String {
    let mode = match writes {
        Writes::Blocks => "blocks".to_owned(),
        Writes::SingleEvents => "single".to_owned(),
        Writes::ManyChunks => "chunks".to_owned(),
        Writes::Slow(rate) => format!("slow{rate}"),
        Writes::Hold => "hold".to_owned(),
        Writes::Whole => "whole".to_owned(),
        Writes::WholeThinking => "thinking".to_owned(),
    };
    format!("bench-{events}-{mode}")
}

fn read_model_name(body: &[u8]) -> Option<(u32, Writes)> {
    const PREFIX: &[u8] = b"bench-";
    let start = memchr::memmem::find(body, PREFIX)? + PREFIX.len();
    let rest = &body[start..];
    let end = memchr::memchr(b'"', rest)?;
    let (events, mode) = std::str::from_utf8(&rest[..end]).ok()?.split_once('-')?;
    let writes = match mode {
        "blocks" => Writes::Blocks,
        "single" => Writes::SingleEvents,
        "chunks" => Writes::ManyChunks,
        "hold" => Writes::Hold,
        "whole" => Writes::Whole,
        "thinking" => Writes::WholeThinking,
        _ => Writes::Slow(mode.strip_prefix("slow")?.parse().ok()?),
    };
    Some((events.parse().ok()?, writes))
}

/// Starts the upstream on a thread of its own, which ends with the process.
pub(crate) fn start() -> Result<SocketAddr, Failure> {
    let (sender, receiver) = mpsc::channel();
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
            if sender.send(address).is_err() {
                return;
            }
            let replies = Rc::new(Mutex::new(BTreeMap::new()));
            while let Ok((stream, _)) = listener.accept().await {
                let replies = Rc::clone(&replies);
                tokio::task::spawn_local(async move {
                    // The client notices a broken connection.
                    let _ = serve(stream, &replies).await;
                });
            }
        });
    });
    receiver.recv().map_err(|_| "the upstream could not listen on a loopback port".to_owned())
}

/// A reply as pieces, each of which is one write.
type Pieces = Rc<Vec<Vec<u8>>>;
type Replies = Mutex<BTreeMap<(u32, Writes), Pieces>>;

async fn serve(mut stream: TcpStream, replies: &Replies) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(BLOCK);
    while let Some(request) = read_request(&mut stream, &mut buffer).await? {
        let Some((events, writes)) = read_model_name(&request) else {
            // Requests that are not the bench's own: readiness, health.
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
        match writes {
            Writes::Hold => {
                let mut byte = [0_u8; 1];
                let _ = tokio::time::timeout(MAX_OPEN, stream.read(&mut byte)).await;
                return Ok(());
            }
            Writes::Slow(rate) => {
                let _ = tokio::time::timeout(MAX_OPEN, write_slowly(&mut stream, rate)).await;
                return Ok(());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes one delta after another until the client closes the connection.
async fn write_slowly(stream: &mut TcpStream, rate: u32) -> std::io::Result<()> {
    let delta = chunk(&delta_event());
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate.max(1));
    loop {
        ticks.tick().await;
        stream.write_all(&delta).await?;
    }
}

/// Reads one request, head and body; none when the peer has closed.
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
        // Bodies of the bench hold these bytes only at their end.
        let end = memchr::memmem::find(&buffer[head..], b"\r\n0\r\n\r\n")?;
        return Some(head + end + 7);
    }
    let body: usize = value("content-length:").map_or(Some(0), |length| length.parse().ok())?;
    (buffer.len() >= head + body).then_some(head + body)
}

fn reply(events: u32, writes: Writes) -> Vec<Vec<u8>> {
    if matches!(writes, Writes::Whole | Writes::WholeThinking) {
        return vec![whole_reply(writes)];
    }
    let events = reply_events(events);
    let mut pieces = vec![
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
          cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    ];
    let chunks = |count: usize| events.iter().take(count).map(|event| chunk(event));
    match writes {
        Writes::Blocks => {
            let whole: Vec<u8> = events.concat();
            pieces.extend(whole.chunks(BLOCK).map(chunk));
        }
        Writes::SingleEvents => pieces.extend(chunks(events.len())),
        Writes::ManyChunks => {
            let whole: Vec<u8> = chunks(events.len()).collect::<Vec<_>>().concat();
            pieces.extend(whole.chunks(SEGMENT).map(<[u8]>::to_vec));
        }
        Writes::Hold | Writes::Slow(_) => {
            // The stream begins: a message, an open block.
            pieces.extend(chunks(3));
            return pieces;
        }
        Writes::Whole | Writes::WholeThinking => {}
    }
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}

/// A short answer as one JSON body.
fn whole_reply(writes: Writes) -> Vec<u8> {
    let model = model_name(0, writes);
    let thinking = match writes {
        Writes::WholeThinking => {
            r#"{"type":"thinking","thinking":"It depends on the wire.","signature":"YmVuY2ggc2lnbmF0dXJlIG9mIG5vYm9keQ=="},"#
        }
        _ => "",
    };
    let body = format!(
        r#"{{"id":"msg_bench","type":"message","role":"assistant","model":"{model}","content":[{thinking}{{"type":"text","text":"As fast as the wire allows."}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":12,"output_tokens":8}}}}"#
    );
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn chunk(data: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
    chunk.extend_from_slice(data);
    chunk.extend_from_slice(b"\r\n");
    chunk
}

fn event(name: &str, data: &str) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

/// A delta of the thinking block that begins each reply.
fn delta_event() -> Vec<u8> {
    event(
        "content_block_delta",
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"and so it follows that "}}"#,
    )
}

/// A reply of exactly `count` events: thinking, then text, in equal parts.
fn reply_events(count: u32) -> Vec<Vec<u8>> {
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
    events.extend((0..thinking).map(|_| delta_event()));
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
    fn reply_has_the_requested_number_of_events() {
        for count in [9, 12, 2000] {
            assert_eq!(reply_events(count).len(), count as usize);
        }
    }

    #[test]
    fn one_write_holds_many_chunks() {
        let pieces = reply(2000, Writes::ManyChunks);
        assert!(pieces.len() < 12, "{} writes", pieces.len());
        let chunks = memchr::memmem::find_iter(&pieces[1], b"\r\nevent: ").count();
        assert!(chunks > 100, "{chunks} chunks in one write");
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
        for writes in [
            Writes::Blocks,
            Writes::SingleEvents,
            Writes::ManyChunks,
            Writes::Slow(50),
            Writes::Hold,
            Writes::Whole,
            Writes::WholeThinking,
        ] {
            let body = format!(r#"{{"model":"{}"}}"#, model_name(7, writes));
            assert_eq!(read_model_name(body.as_bytes()), Some((7, writes)));
        }
    }
}
