//! A provider of bare TCP: it shows the very bytes the gateway sent, and answers with the very
//! bytes a test gives it, in the pieces and at the moments the test chooses.

use std::time::Duration;

use throughline_testkit::Streamed;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer than any test may wait for one thing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A port somebody listens on.
pub(crate) struct Upstream {
    listener: TcpListener,
    pub(crate) url: String,
}

/// One request, and the connection it came on.
pub(crate) struct Exchange {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// In the order they came, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    connection: TcpStream,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// One that gives every request the same answer, and closes.
    pub(crate) async fn always(answer: impl Into<Vec<u8>>) -> String {
        let upstream = Self::start().await;
        let (url, answer) = (upstream.url.clone(), answer.into());
        tokio::spawn(async move {
            loop {
                upstream.next().await.answer(&answer).await;
            }
        });
        url
    }

    /// The next request, on a connection of its own.
    pub(crate) async fn next(&self) -> Exchange {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        let (connection, _) = accepted.expect("a connection in time").unwrap();
        connection.set_nodelay(true).unwrap();
        Exchange::read(connection).await
    }
}

impl Upstream {
    /// The next connection, of which nothing was read.
    pub(crate) async fn begun(&self) -> TcpStream {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        accepted.expect("a connection in time").unwrap().0
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
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let mut first = lines.next().unwrap().split(' ');
        let mut exchange = Self {
            method: first.next().unwrap().to_owned(),
            target: first.next().unwrap().to_owned(),
            headers: lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: bytes[end..].to_vec(),
            connection,
        };
        if let Some(length) = exchange.header("content-length") {
            let length: usize = length.parse().unwrap();
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
            let length = std::str::from_utf8(&raw[..line]).unwrap();
            let length = usize::from_str_radix(length, 16).unwrap();
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

    /// The first header of a name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// All headers of a name.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let all = self.headers.iter();
        all.filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Writes these bytes and nothing else.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.connection.write_all(bytes.as_ref()).await.unwrap();
        self.connection.flush().await.unwrap();
    }

    /// Writes the head of a stream of events that ends where the connection does.
    pub(crate) async fn begin_events(&mut self) {
        self.write(head("text/event-stream; charset=utf-8", "")).await;
    }

    /// Writes these bytes and closes, as a server that is done.
    pub(crate) async fn answer(mut self, bytes: &[u8]) {
        self.write(bytes).await;
        self.close().await;
    }

    /// Closes as a server that is done.
    pub(crate) async fn close(mut self) {
        self.end().await;
        self.closed().await;
    }

    /// Says that nothing more follows.
    pub(crate) async fn end(&mut self) {
        self.connection.shutdown().await.unwrap();
    }

    /// Waits until the gateway has closed the connection.
    pub(crate) async fn closed(mut self) {
        let mut rest = Vec::new();
        let ended = self.connection.read_to_end(&mut rest);
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        // A reset is an end as well.
        let _ = ended.expect("the gateway closes in time");
    }
}

/// The head of a good reply of this type; without a length it ends where the connection does.
pub(crate) fn head(content_type: &str, more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n{more}\r\n")
}

/// A whole good reply.
pub(crate) fn whole(content_type: &str, more: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let more = format!("content-length: {}\r\n{more}", body.len());
    [head(content_type, &more).as_bytes(), body].concat()
}

/// Half a whole reply of this full length, in every way a body can be framed: by a length that is not
/// reached, in chunks without the last, by the end of the connection, and by a length that is its own.
pub(crate) fn framings(half: &[u8], length: usize) -> [(&'static str, Vec<u8>); 4] {
    let framed = |more: &str, body: &[u8]| {
        let head = head("application/json; charset=utf-8", more);
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

/// Everything up to the end, or to where the connection breaks; and whether it broke.
pub(crate) async fn read_to_end(streamed: &mut Streamed) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    while let Some(piece) = streamed.try_next().await {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(_) => return (bytes, true),
        }
    }
    (bytes, false)
}

async fn read_more(connection: &mut TcpStream, bytes: &mut Vec<u8>) {
    let read = tokio::time::timeout(PATIENCE, connection.read_buf(bytes)).await;
    assert_ne!(read.expect("more in time").unwrap(), 0, "the request broke");
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
