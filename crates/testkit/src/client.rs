//! A plain HTTP client: it adds nothing to a request and hides nothing of an answer.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::MAX_WAIT;

/// An HTTP client for one server.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

/// An HTTP answer with its whole body.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The response headers.
    pub headers: HeaderMap,
    /// The body, as received.
    pub body: Bytes,
}

/// An HTTP answer whose body is still arriving.
#[derive(Debug)]
pub struct StreamedAnswer {
    /// The HTTP status code.
    pub status: u16,
    /// The response headers.
    pub headers: HeaderMap,
    body: hyper::body::Incoming,
}

impl Client {
    /// Creates a client for the server at `base`, such as `http://127.0.0.1:8484`.
    pub fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            inner: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Sends a request and returns as soon as the head of the answer has arrived.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> StreamedAnswer {
        self.try_open(method, path, headers, body).await.expect("an answer")
    }

    /// The same for a server that may refuse the connection or break it.
    pub async fn try_open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<StreamedAnswer, hyper_util::client::legacy::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let response = tokio::time::timeout(MAX_WAIT, self.inner.request(request))
            .await
            .expect("an answer in time")?;
        let (head, body) = response.into_parts();
        Ok(StreamedAnswer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Sends a request and waits for the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.open(method, path, headers, body).await.read_all().await
    }

    /// Sends a `GET` request without extra headers.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// Posts JSON with the headers an Anthropic client sends, plus `headers`.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.post_bytes(path, headers, body.to_string()).await
    }

    /// Like [`Client::post`], with a body of bytes.
    pub async fn post_bytes(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let mut all =
            vec![("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
        all.extend_from_slice(headers);
        self.send(Method::POST, path, &all, body).await
    }
}

impl StreamedAnswer {
    /// Returns the next bytes, or `None` at the end.
    ///
    /// # Panics
    /// If the connection breaks.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.try_next().await.map(|piece| piece.expect("an unbroken connection"))
    }

    /// Returns the next bytes, the error that broke the connection, or `None` at the end.
    pub async fn try_next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let frame = tokio::time::timeout(MAX_WAIT, self.body.frame())
                .await
                .expect("more of the answer in time")?;
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Reads the rest of the body.
    ///
    /// # Panics
    /// If the connection breaks.
    pub async fn read_all(mut self) -> Answer {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await {
            body.extend_from_slice(&piece);
        }
        Answer { status: self.status, headers: self.headers, body: body.into() }
    }

    /// Reads until the body ends or the connection breaks. The flag is true if it broke.
    pub async fn read_to_break(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        while let Some(piece) = self.try_next().await {
            match piece {
                Ok(piece) => body.extend_from_slice(&piece),
                Err(_) => return (body, true),
            }
        }
        (body, false)
    }
}

impl Answer {
    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {} {}", self.status, self.text());
        })
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the value of a header, or an empty string if the header is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a readable header"))
            .unwrap_or_default()
    }

    /// Returns the same answer after checking that its status is 200.
    ///
    /// # Panics
    /// If the status is not 200.
    pub fn expect_ok(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.text());
        self
    }
}
