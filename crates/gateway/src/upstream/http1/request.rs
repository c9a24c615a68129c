//! A request on its way to the provider.

use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, header};
use http_body::Body;
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;

use super::super::{BoxError, RequestBody};

/// A request on its way to the provider.
pub(super) struct SendingRequest {
    /// The head, or the bytes around a chunk. They are written before `data`.
    head: Bytes,
    data: Bytes,
    body: RequestBody,
    framing: BodyFraming,
    unsent: bool,
}

/// How the rest of the body is sent.
enum BodyFraming {
    /// This many bytes are left.
    Length(u64),
    /// In chunks. `between` is true after the first one.
    Chunked { between: bool },
    /// Everything is in `head` and `data`.
    Ended,
}

/// Why a request cannot be sent.
pub(super) enum SendFailure {
    /// The connection broke. A reply may have arrived before.
    Connection(io::Error),
    /// The client's body broke off.
    Body(BoxError),
}

impl SendingRequest {
    pub(super) fn new(parts: &Parts, body: RequestBody) -> io::Result<Self> {
        let framing = match body.size_hint().exact() {
            _ if body.is_end_stream() => BodyFraming::Ended,
            Some(length) => BodyFraming::Length(length),
            None => BodyFraming::Chunked { between: false },
        };
        let head = write_head(parts, &framing)?.into();
        Ok(Self { head, data: Bytes::new(), body, framing, unsent: true })
    }

    /// Whether no byte was written, so that the request can be sent on another connection.
    pub(super) fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// Writes the request. Ready when all of it is written.
    pub(super) fn poll_send(
        &mut self,
        stream: &mut TcpStream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendFailure>> {
        loop {
            let waits = match self.data.is_empty() {
                true => self.poll_body(context).map_err(SendFailure::Body)?.is_pending(),
                false => false,
            };
            if self.head.is_empty() && self.data.is_empty() {
                match (&self.framing, waits) {
                    (BodyFraming::Ended, _) => return Poll::Ready(Ok(())),
                    (_, true) => return Poll::Pending,
                    (_, false) => continue,
                }
            }
            let slices = [IoSlice::new(&self.head), IoSlice::new(&self.data)];
            let written = Pin::new(&mut *stream).poll_write_vectored(context, &slices);
            let written = ready!(written).map_err(SendFailure::Connection)?;
            if written == 0 {
                let error = io::ErrorKind::WriteZero.into();
                return Poll::Ready(Err(SendFailure::Connection(error)));
            }
            self.unsent = false;
            let of_head = written.min(self.head.len());
            self.head.advance(of_head);
            self.data.advance(written - of_head);
        }
    }

    /// Takes the next bytes of the body.
    fn poll_body(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, BoxError> {
        if let BodyFraming::Ended = self.framing {
            return Ok(Poll::Ready(()));
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            return Ok(Poll::Pending);
        };
        let data = match frame.transpose()? {
            // Trailers are not sent.
            Some(frame) => frame.into_data().unwrap_or_default(),
            None => return self.end_body().map(Poll::Ready),
        };
        match &mut self.framing {
            BodyFraming::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(WRONG_LENGTH)?;
                if *left == 0 {
                    self.framing = BodyFraming::Ended;
                }
            }
            BodyFraming::Chunked { between } if !data.is_empty() => {
                let line_end = if std::mem::replace(between, true) { "\r\n" } else { "" };
                self.add_head(&format!("{line_end}{:x}\r\n", data.len()));
            }
            _ => {}
        }
        self.data = data;
        Ok(Poll::Ready(()))
    }

    fn end_body(&mut self) -> Result<(), BoxError> {
        match self.framing {
            BodyFraming::Length(_) => return Err(WRONG_LENGTH.into()),
            BodyFraming::Chunked { between: false } => self.add_head("0\r\n\r\n"),
            BodyFraming::Chunked { between: true } => self.add_head("\r\n0\r\n\r\n"),
            BodyFraming::Ended => {}
        }
        self.framing = BodyFraming::Ended;
        Ok(())
    }

    fn add_head(&mut self, more: &str) {
        self.head = [&self.head, more.as_bytes()].concat().into();
    }
}

const WRONG_LENGTH: &str = "the request body does not have its declared length";

fn write_head(parts: &Parts, framing: &BodyFraming) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    write!(head, "{} {path} HTTP/1.1\r\n", parts.method)?;
    if !parts.headers.contains_key(header::HOST) {
        let host = parts.uri.authority().map_or("", |authority| authority.as_str());
        write!(head, "host: {host}\r\n")?;
    }
    write_headers(&parts.headers, &mut head);
    let empty_upload = [Method::POST, Method::PUT, Method::PATCH].contains(&parts.method);
    match framing {
        BodyFraming::Length(length) => write!(head, "content-length: {length}\r\n")?,
        BodyFraming::Chunked { .. } => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        BodyFraming::Ended if empty_upload => head.extend_from_slice(b"content-length: 0\r\n"),
        BodyFraming::Ended => {}
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Writes all headers except those that describe the body.
fn write_headers(headers: &HeaderMap, head: &mut Vec<u8>) {
    for (name, value) in headers {
        if [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].contains(name) {
            continue;
        }
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
}
