//! The pool, with real sockets.

use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;
use crate::upstream::whole;

const CONNECT: Duration = Duration::from_secs(5);
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";

/// A pool and the provider it sends to.
struct Bench {
    pool: Arc<Pool>,
    provider: TcpListener,
    authority: Authority,
}

impl Bench {
    async fn new() -> Self {
        let provider = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = provider.local_addr().unwrap().to_string().parse().unwrap();
        Self { pool: Arc::default(), provider, authority }
    }

    async fn accept(&self) -> TcpStream {
        self.provider.accept().await.unwrap().0
    }

    fn send(
        &self,
        body: &'static [u8],
    ) -> impl Future<Output = Result<Response<Driven>, BoxError>> {
        let (pool, authority) = (self.pool.clone(), self.authority.clone());
        async move {
            let request = Request::post(format!("http://{authority}/path?q=1"));
            pool.send(request.body(whole(Bytes::from_static(body))).unwrap(), CONNECT).await
        }
    }

    /// Sends a request over a connection that the provider has accepted, and reads the reply.
    async fn exchange(&self, server: &mut TcpStream) -> Bytes {
        let (reply, ()) = tokio::join!(self.send(b"hello"), answer(server, OK));
        collect(reply.unwrap()).await.unwrap()
    }

    /// Opens a connection by a first request. Returns the provider's end.
    async fn connect(&self) -> TcpStream {
        self.connect_by(OK).await
    }

    /// Opens a connection by a request with this reply.
    async fn connect_by(&self, reply: &str) -> TcpStream {
        let serve = async {
            let mut server = self.accept().await;
            answer(&mut server, reply).await;
            server
        };
        let (reply, server) = tokio::join!(self.send(b"hello"), serve);
        assert_eq!(collect(reply.unwrap()).await.unwrap(), "ok");
        server
    }

    fn idle(&self) -> usize {
        self.pool.idle.lock().get(&self.authority).map_or(0, Vec::len)
    }

    /// Changes the only idle connection.
    async fn with_idle(&self, change: impl AsyncFnOnce(&mut Connection)) {
        let taken = self.pool.idle.lock().get_mut(&self.authority).and_then(Vec::pop);
        let mut idle = taken.unwrap();
        change(&mut idle.connection).await;
        self.pool.idle.lock().entry(self.authority.clone()).or_default().push(idle);
    }
}

async fn collect(reply: Response<Driven>) -> Result<Bytes, BoxError> {
    Ok(reply.into_body().collect().await?.to_bytes())
}

/// Reads a request with the body `hello`, and answers it.
async fn answer(server: &mut TcpStream, reply: &str) {
    assert!(read_request(server).await.ends_with("\r\n\r\nhello"));
    server.write_all(reply.as_bytes()).await.unwrap();
}

/// Reads until the body `hello`, or until the end.
async fn read_request(server: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"hello") && server.read_buf(&mut read).await.unwrap() > 0 {}
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn idle_connection_is_reused() {
    let bench = Bench::new().await;
    let mut server = bench.connect().await;
    for _ in 0..3 {
        assert_eq!(bench.idle(), 1);
        assert_eq!(bench.exchange(&mut server).await, "ok");
    }
}

/// llama.cpp closes the connection after a stream, although it promises to keep it open.
#[tokio::test]
async fn connection_is_not_reused_directly_after_a_stream() {
    let bench = Bench::new().await;
    let _closes_soon = bench.connect_by(STREAM).await;
    assert_eq!(bench.idle(), 1);
    tokio::time::timeout(CONNECT, bench.connect()).await.expect("a new connection");
    assert_eq!(bench.idle(), 2);
}

#[tokio::test]
async fn connection_is_reused_after_a_stream_if_the_provider_keeps_it_open() {
    let bench = Bench::new().await;
    let mut server = bench.connect_by(STREAM).await;
    for idle in bench.pool.idle.lock().values_mut().flatten() {
        idle.since -= MIN_IDLE_AFTER_STREAM;
    }
    // The first reuse shows it, and the others do not wait.
    for _ in 0..3 {
        let serve = answer(&mut server, STREAM);
        let (reply, ()) = tokio::join!(bench.send(b"hello"), serve);
        assert_eq!(collect(reply.unwrap()).await.unwrap(), "ok");
        assert_eq!(bench.idle(), 1);
    }
}

#[tokio::test]
async fn request_has_a_host_and_a_length() {
    let bench = Bench::new().await;
    let serve = async {
        let mut server = bench.accept().await;
        let request = read_request(&mut server).await;
        server.write_all(OK.as_bytes()).await.unwrap();
        request
    };
    let (reply, request) = tokio::join!(bench.send(b"hello"), serve);
    assert_eq!(reply.unwrap().status(), StatusCode::OK);
    let host = &bench.authority;
    let expected =
        format!("POST /path?q=1 HTTP/1.1\r\nhost: {host}\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(request, expected);
}

#[tokio::test]
async fn connection_that_was_closed_while_idle_is_not_used() {
    let bench = Bench::new().await;
    drop(bench.connect().await);
    bench.with_idle(async |idle| idle.stream.readable().await.unwrap()).await;
    bench.connect().await;
}

#[tokio::test]
async fn connection_that_sent_bytes_unasked_is_not_used() {
    let bench = Bench::new().await;
    let mut server = bench.connect().await;
    server.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
    bench.with_idle(async |idle| idle.stream.readable().await.unwrap()).await;
    bench.connect().await;
}

#[tokio::test]
async fn unsent_request_is_sent_on_a_new_connection() {
    let bench = Bench::new().await;
    let mut old = bench.connect().await;
    // The connection looks open, and the first write fails.
    bench.with_idle(async |idle| idle.stream.shutdown().await.unwrap()).await;
    let serve = async {
        assert_eq!(read_request(&mut old).await, "");
        drop(old);
        let mut server = bench.accept().await;
        answer(&mut server, OK).await;
    };
    let (reply, ()) = tokio::join!(bench.send(b"hello"), serve);
    assert_eq!(collect(reply.unwrap()).await.unwrap(), "ok");
}

#[tokio::test]
async fn sent_request_is_not_repeated_if_the_connection_is_closed() {
    let bench = Bench::new().await;
    let mut server = bench.connect().await;
    let serve = async {
        assert!(read_request(&mut server).await.ends_with("hello"));
        drop(server);
    };
    let (reply, ()) = tokio::join!(bench.send(b"hello"), serve);
    let error = reply.err().unwrap().to_string();
    assert_eq!(error, "the connection was closed before the reply");
    assert_eq!(bench.idle(), 0);
}

#[tokio::test]
async fn reply_before_the_end_of_the_request_is_read() {
    let bench = Bench::new().await;
    let serve = async {
        let mut server = bench.accept().await;
        let refusal = "HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        server.write_all(refusal.as_bytes()).await.unwrap();
        server
    };
    static LARGE: [u8; 32 << 20] = [b'x'; 32 << 20];
    let (reply, _server) = tokio::join!(bench.send(&LARGE), serve);
    assert_eq!(reply.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(bench.idle(), 0);
}

#[tokio::test]
async fn body_that_is_dropped_in_the_middle_closes_its_connection() {
    let bench = Bench::new().await;
    let serve = async {
        let mut server = bench.accept().await;
        answer(&mut server, "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfirst").await;
        server
    };
    let (reply, mut server) = tokio::join!(bench.send(b"hello"), serve);
    let mut body = reply.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "first");
    drop(body);
    assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(bench.idle(), 0);
}

#[tokio::test]
async fn body_that_ends_early_is_an_error() {
    for reply in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nfirst",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n",
    ] {
        let bench = Bench::new().await;
        let serve = async { answer(&mut bench.accept().await, reply).await };
        let (reply, ()) = tokio::join!(bench.send(b"hello"), serve);
        let error = collect(reply.unwrap()).await.unwrap_err().to_string();
        assert_eq!(error, "the connection was closed before the end of the reply");
    }
}

#[tokio::test]
async fn connection_is_kept_only_if_the_reply_allows_it() {
    for (reply, body, kept) in [
        ("HTTP/1.1 204 No Content\r\n\r\n", "", 1),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok", 1),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", 1),
        ("HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nok", "ok", 0),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", "ok", 0),
        ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", "ok", 1),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", 0),
    ] {
        let bench = Bench::new().await;
        let serve = async { answer(&mut bench.accept().await, reply).await };
        let (answered, ()) = tokio::join!(bench.send(b"hello"), serve);
        assert_eq!(collect(answered.unwrap()).await.unwrap(), body, "{reply}");
        assert_eq!(bench.idle(), kept, "{reply}");
    }
}

#[tokio::test]
async fn number_and_age_of_idle_connections_are_limited() {
    let bench = Bench::new().await;
    let mut servers = Vec::new();
    for _ in 0..=MAX_IDLE_CONNECTIONS {
        let opening = Connection::open(&bench.authority, CONNECT);
        let (connection, server) = tokio::join!(opening, bench.accept());
        bench.pool.put(bench.authority.clone(), connection.unwrap());
        servers.push(server);
    }
    assert_eq!(bench.idle(), MAX_IDLE_CONNECTIONS);
    bench.pool.close_old();
    assert_eq!(bench.idle(), MAX_IDLE_CONNECTIONS);
    for idle in bench.pool.idle.lock().get_mut(&bench.authority).unwrap() {
        idle.since -= MAX_IDLE;
    }
    bench.pool.close_old();
    assert!(bench.pool.idle.lock().is_empty());
}

/// Reads a chunked body that arrives in pieces of this size.
fn read_chunks(wire: &[u8], piece: usize) -> Result<(String, bool), BoxError> {
    let (mut framing, mut buffer, mut read) = (Framing::ChunkSize, BytesMut::new(), Vec::new());
    for piece in wire.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let data = framing.take(&mut buffer)?;
            if data.is_empty() {
                break;
            }
            read.extend_from_slice(&data);
        }
    }
    Ok((String::from_utf8(read)?, framing.is_ended()))
}

#[test]
fn chunks_are_read_with_every_cut() {
    let wire =
        b"5\r\nfirst\r\n00A;name=value\r\n and second\r\n1 \r\n!\r\n0\r\nx-trailer: 1\r\n\r\n";
    let short = b"5\r\nfirst\r\n0A \r\n and secon\r\n0\r\n\r\n";
    for piece in 1..=wire.len() {
        let (text, ended) = read_chunks(short, piece).unwrap();
        assert_eq!((text.as_str(), ended), ("first and secon", true), "{piece}");
    }
    // The size line says ten bytes, and eleven follow.
    assert!(read_chunks(wire, wire.len()).is_err());
}

#[test]
fn invalid_chunks_are_refused() {
    for wire in [
        "x\r\n",
        "\r\n",
        "+5\r\nfirst\r\n",
        "-1\r\n",
        "5\nfirst\r\n",
        "5 5\r\nfirst\r\n",
        "5\r\nfirst!\r\n",
        "10000000000000000\r\n",
        "5\r\nfirst\n0\r\n\r\n",
    ] {
        assert!(read_chunks(wire.as_bytes(), 3).is_err(), "{wire:?}");
    }
    let long = format!("1;{}", "x".repeat(20_000));
    assert!(read_chunks(long.as_bytes(), 100).is_err());
}

#[test]
fn conflicting_lengths_are_refused() {
    for (lengths, valid) in [
        ("content-length: 2\r\n", true),
        ("content-length: 2\r\ncontent-length: 2\r\n", true),
        ("content-length: 2, 2\r\n", true),
        ("content-length: 2\r\ncontent-length: 3\r\n", false),
        ("content-length: +2\r\n", false),
        ("content-length: -2\r\n", false),
        ("content-length: 2a\r\n", false),
    ] {
        let mut head = BytesMut::from(format!("HTTP/1.1 200 OK\r\n{lengths}\r\n").as_bytes());
        let read = ReceivedHead::read(&mut head, &Method::GET);
        assert_eq!(read.is_ok(), valid, "{lengths}");
    }
}

#[tokio::test]
async fn other_address_family_is_tried_if_the_first_is_silent_or_fails() {
    let silent = std::future::pending::<io::Result<u8>>;
    let works = || async { Ok(2) };
    let fails = || async { Err::<u8, _>(io::Error::other("no route")) };
    let slow = || async {
        tokio::time::sleep(FAMILY_DELAY * 2).await;
        Ok(1)
    };
    assert_eq!(first_success(works(), silent()).await.unwrap(), 2);
    assert_eq!(first_success(silent(), works()).await.unwrap(), 2);
    assert_eq!(first_success(fails(), works()).await.unwrap(), 2);
    assert_eq!(first_success(slow(), fails()).await.unwrap(), 1);
    assert!(first_success(fails(), fails()).await.is_err());
}

#[tokio::test]
async fn host_with_both_families_is_reached_if_one_listens() {
    let v4 = TcpListener::bind("127.0.0.1:0").await.unwrap();
    connect_any("localhost", v4.local_addr().unwrap().port()).await.unwrap();
}
