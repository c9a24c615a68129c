//! A plain HTTP client: what was sent is what was given, what came is what is shown.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Longer than any test may wait for one answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Client {
    base: String,
    inner: hyper_util::client::legacy::Client<HttpConnector, Full<Bytes>>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

/// An answer that is still arriving.
#[derive(Debug)]
pub struct Streamed {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    body: hyper::body::Incoming,
}

impl Client {
    /// A client of the server at this address, such as `http://127.0.0.1:8484`.
    pub fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            inner: hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Sends a request and gives the answer as it begins.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Streamed {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let response = tokio::time::timeout(PATIENCE, self.inner.request(request))
            .await
            .expect("an answer in time")
            .expect("an answer");
        let (head, body) = response.into_parts();
        Streamed { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// Sends a request and waits for the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.open(method, path, headers, body).await.whole().await
    }

    /// `GET`
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    /// `POST` of JSON with the headers an Anthropic client sends, and these.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.post_bytes(path, headers, body.to_string()).await
    }

    /// As [`Client::post`], with the body as bytes.
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

impl Streamed {
    /// The next bytes; none at the end.
    ///
    /// # Panics
    /// If the connection breaks.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.try_next().await.map(|piece| piece.expect("the answer goes on"))
    }

    /// The next bytes, or why there are none.
    pub async fn try_next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let frame = tokio::time::timeout(PATIENCE, self.body.frame())
                .await
                .expect("more of the answer in time")?;
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// All the rest.
    pub async fn whole(mut self) -> Answer {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await {
            body.extend_from_slice(&piece);
        }
        Answer { status: self.status, headers: self.headers, body: body.into() }
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            panic!("{error}: {} {}", self.status, self.text());
        })
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header, empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a readable header"))
            .unwrap_or_default()
    }

    /// The same answer, if it was good.
    ///
    /// # Panics
    /// If it was not.
    pub fn good(self) -> Self {
        assert_eq!(self.status, 200, "{}", self.text());
        self
    }
}
