//! An upstream on plain TCP: a test reads the exact bytes the gateway sent and answers with exact
//! bytes, in the pieces and at the moments it chooses.

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::MAX_WAIT;
use crate::gateway::Gateway;

/// A listening port that accepts one request per connection.
#[derive(Debug)]
pub struct RawUpstream {
    listener: TcpListener,
    /// The base URL.
    pub url: String,
}

/// One request and its connection.
#[derive(Debug)]
pub struct Exchange {
    /// The HTTP method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers in the order they were sent, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    connection: TcpStream,
}

impl RawUpstream {
    /// Listens on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        Self { listener, url }
    }

    /// Starts an upstream that gives every request the same answer, and returns its URL.
    pub async fn always_answering(answer: impl Into<Vec<u8>>) -> String {
        let upstream = Self::start().await;
        let (url, answer) = (upstream.url.clone(), answer.into());
        tokio::spawn(async move {
            loop {
                upstream.next().await.answer(&answer).await;
            }
        });
        url
    }

    /// Accepts a connection and reads its request.
    pub async fn next(&self) -> Exchange {
        let connection = self.accept().await;
        connection.set_nodelay(true).expect("an open connection");
        Exchange::read(connection).await
    }

    /// Accepts a connection without reading from it.
    pub async fn accept(&self) -> TcpStream {
        let accepted = tokio::time::timeout(MAX_WAIT, self.listener.accept()).await;
        accepted.expect("a connection in time").expect("a connection").0
    }
}

impl Exchange {
    async fn read(mut connection: TcpStream) -> Self {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = find(&bytes, b"\r\n\r\n") {
                break at + 4;
            }
            read_more(&mut connection, &mut bytes).await;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a valid HTTP request");
        let mut lines = head.lines();
        let mut first = lines.next().expect("a valid HTTP request").split(' ');
        let mut exchange = Self {
            method: first.next().expect("a valid HTTP request").to_owned(),
            target: first.next().expect("a valid HTTP request").to_owned(),
            headers: lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: bytes[end..].to_vec(),
            connection,
        };
        if let Some(length) = exchange.header("content-length") {
            let length: usize = length.parse().expect("a valid HTTP request");
            while exchange.body.len() < length {
                read_more(&mut exchange.connection, &mut exchange.body).await;
            }
        } else if exchange.header("transfer-encoding") == Some("chunked") {
            exchange.read_chunks().await;
        }
        exchange
    }

    async fn read_chunks(&mut self) {
        let (mut raw, mut body) = (std::mem::take(&mut self.body), Vec::new());
        loop {
            let Some(line) = find(&raw, b"\r\n") else {
                read_more(&mut self.connection, &mut raw).await;
                continue;
            };
            let length = std::str::from_utf8(&raw[..line]).expect("a valid HTTP request");
            let length = usize::from_str_radix(length, 16).expect("a valid HTTP request");
            let end = line + 2 + length + 2;
            while raw.len() < end {
                read_more(&mut self.connection, &mut raw).await;
            }
            body.extend_from_slice(&raw[line + 2..end - 2]);
            raw.drain(..end);
            if length == 0 {
                self.body = body;
                return;
            }
        }
    }

    /// Returns the first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns all headers with this name.
    pub fn headers_named(&self, name: &str) -> Vec<&str> {
        let all = self.headers.iter();
        all.filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Writes these bytes and nothing else.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.connection.write_all(bytes.as_ref()).await.expect("an open connection");
        self.connection.flush().await.expect("an open connection");
    }

    /// Writes the head of an SSE stream that ends when the connection closes.
    pub async fn begin_events(&mut self) {
        self.write(ok_head("text/event-stream; charset=utf-8", "")).await;
    }

    /// Writes these bytes and closes the connection in the regular way.
    pub async fn answer(mut self, bytes: &[u8]) {
        self.write(bytes).await;
        self.close().await;
    }

    /// Closes the connection in the regular way.
    pub async fn close(mut self) {
        self.shut_down().await;
        self.wait_until_closed().await;
    }

    /// Shuts down the writing side: no more bytes follow.
    pub async fn shut_down(&mut self) {
        self.connection.shutdown().await.expect("an open connection");
    }

    /// Waits until the gateway has closed the connection.
    pub async fn wait_until_closed(mut self) {
        let mut rest = Vec::new();
        let ended = self.connection.read_to_end(&mut rest);
        let ended = tokio::time::timeout(MAX_WAIT, ended).await;
        // A connection reset also counts as closed.
        let _ = ended.expect("the gateway closes in time");
    }
}

/// Returns the head of a 200 reply. Without a `content-length` in `more` the body ends when the
/// connection closes.
pub fn ok_head(content_type: &str, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n{more}\r\n")
}

/// Returns a whole 200 reply.
pub fn ok_reply(content_type: &str, more: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let more = format!("content-length: {}\r\n{more}", body.len());
    [ok_head(content_type, &more).as_bytes(), body].concat()
}

/// Relays a whole reply that was cut after `cut` bytes, once for each framing of a body, and checks
/// that the client notices: the connection breaks. Only an announced empty body leaves room for an
/// error status. A gateway that renames the model (`mapped`) may withhold more than one byte.
///
/// # Panics
/// If the client would take the reply for a complete one.
pub async fn check_cut_reply(
    (upstream, gateway): (&RawUpstream, &Gateway),
    (path, request): (&str, &str),
    (reply, cut): (&str, usize),
    mapped: bool,
) {
    let half = &reply.as_bytes()[..cut];
    for (framing, answer) in cut_replies(half, reply.len()) {
        let case = format!("{path} {framing} {cut} mapped {mapped}");
        let headers = [("content-type", "application/json")];
        let opened = gateway.client.open(Method::POST, path, &headers, request.to_owned());
        let (mut streamed, ()) = tokio::join!(opened, async {
            upstream.next().await.answer(&answer).await;
        });
        let (bytes, broken) = streamed.read_to_break().await;
        if (cut, framing) == (0, "own length") {
            assert_eq!((streamed.status, broken), (502, false), "{case}");
            let text = String::from_utf8(bytes).expect("an error as text");
            assert!(text.contains("empty body"), "{case}: {text}");
            continue;
        }
        assert!(broken, "{case}");
        assert!(half.starts_with(&bytes), "{case}");
        let lost = half.len() - bytes.len();
        // Where the announced length is complete, the gateway withholds the last byte.
        assert!(mapped || lost <= 1, "{case}: {lost} bytes lost");
        assert_eq!(gateway.last_turn().await["end"], "cut", "{case}");
    }
}

/// Returns a reply with an incomplete JSON body, once for each way to frame a body: with the
/// `content-length` of the complete body, in chunks without the last chunk, until the connection
/// closes, and with the `content-length` of the incomplete body.
fn cut_replies(half: &[u8], length: usize) -> [(&'static str, Vec<u8>); 4] {
    let framed = |more: &str, body: &[u8]| {
        let head = ok_head("application/json; charset=utf-8", more);
        [head.as_bytes(), body].concat()
    };
    let chunk = match half {
        [] => Vec::new(),
        half => [format!("{:x}\r\n", half.len()).as_bytes(), half, b"\r\n"].concat(),
    };
    let own = format!("content-length: {}\r\n", half.len());
    [
        ("length", framed(&format!("content-length: {length}\r\n"), half)),
        ("chunks", framed("transfer-encoding: chunked\r\n", &chunk)),
        ("end", framed("", half)),
        ("own length", framed(&own, half)),
    ]
}

async fn read_more(connection: &mut TcpStream, bytes: &mut Vec<u8>) {
    let read = tokio::time::timeout(MAX_WAIT, connection.read_buf(bytes)).await;
    let read = read.expect("more bytes in time").expect("an open connection");
    assert_ne!(read, 0, "the request ended early");
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
