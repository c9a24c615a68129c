//! The head of a reply, and how its body ends.

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};

use super::super::BoxError;

/// How many bytes the head of a reply, a chunk's size line or the trailers may have.
const MAX_HEAD_BYTES: usize = 256 << 10;
const MAX_LINE_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 100;

/// The head of a reply.
pub(super) struct ReceivedHead {
    pub(super) response: Response<()>,
    pub(super) framing: Framing,
    /// Whether the connection can be used again.
    pub(super) keep_alive: bool,
}

impl ReceivedHead {
    /// Takes a head from the start of the buffer. `None` if it is not complete yet.
    pub(super) fn read(buffer: &mut BytesMut, method: &Method) -> Result<Option<Self>, BoxError> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut parsed = httparse::Response::new(&mut headers);
            let httparse::Status::Complete(length) = parsed.parse(buffer)? else {
                return match buffer.len() > MAX_HEAD_BYTES {
                    true => Err("the head of the reply is too long".into()),
                    false => Ok(None),
                };
            };
            let status = StatusCode::from_u16(parsed.code.unwrap_or_default())?;
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Err("the provider switched to another protocol".into());
            }
            let mut response = Response::new(());
            *response.status_mut() = status;
            *response.version_mut() = match parsed.version {
                Some(0) => Version::HTTP_10,
                _ => Version::HTTP_11,
            };
            for field in parsed.headers.iter() {
                let name = HeaderName::from_bytes(field.name.as_bytes())?;
                response.headers_mut().append(name, HeaderValue::from_bytes(field.value)?);
            }
            buffer.advance(length);
            // Interim replies such as `100 Continue` come before the real one.
            if !status.is_informational() {
                return Self::new(response, method).map(Some);
            }
        }
    }

    fn new(response: Response<()>, method: &Method) -> Result<Self, BoxError> {
        let framing = Framing::of(&response, method)?;
        let connection = tokens(response.headers(), &header::CONNECTION);
        let keep_alive = match response.version() {
            Version::HTTP_10 => connection.iter().any(|token| token == "keep-alive"),
            _ => !connection.iter().any(|token| token == "close"),
        };
        let keep_alive = keep_alive && framing != Framing::UntilClose;
        Ok(Self { response, framing, keep_alive })
    }
}

/// How the rest of a body is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes are left.
    Length(u64),
    /// Chunks: a size line follows.
    ChunkSize,
    /// Chunks: this many bytes of one are left.
    ChunkData(u64),
    /// Chunks: the line end after a chunk follows.
    ChunkEnd,
    /// Chunks: the trailers follow, and this many bytes of them were read.
    Trailers(usize),
    /// The body ends when the connection is closed.
    UntilClose,
    /// Chunks: the next line is invalid.
    Broken,
}

impl Framing {
    fn of(response: &Response<()>, method: &Method) -> Result<Self, BoxError> {
        let (status, headers) = (response.status(), response.headers());
        let no_body = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        if no_body || *method == Method::HEAD {
            return Ok(Self::Length(0));
        }
        if let Some(coding) = tokens(headers, &header::TRANSFER_ENCODING).last() {
            return Ok(if coding == "chunked" { Self::ChunkSize } else { Self::UntilClose });
        }
        let mut lengths = tokens(headers, &header::CONTENT_LENGTH);
        lengths.dedup();
        match lengths.as_slice() {
            [] if !headers.contains_key(header::CONTENT_LENGTH) => Ok(Self::UntilClose),
            [length] if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(Self::Length(length.parse()?))
            }
            _ => Err("the reply has an invalid content-length".into()),
        }
    }

    /// Whether nothing of the body is left.
    pub(super) fn is_ended(self) -> bool {
        self == Self::Length(0)
    }

    /// Takes bytes of the body from the buffer. They are empty if more bytes must be read, or if
    /// the body has ended.
    pub(super) fn take(&mut self, buffer: &mut BytesMut) -> Result<Bytes, BoxError> {
        let mut data = Bytes::new();
        loop {
            match self {
                Self::Length(left) | Self::ChunkData(left) => {
                    if !data.is_empty() || *left == 0 || buffer.is_empty() {
                        return Ok(data);
                    }
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                    data = buffer.split_to(length).freeze();
                    *left -= length as u64;
                    if *self == Self::ChunkData(0) {
                        *self = Self::ChunkEnd;
                    }
                }
                Self::UntilClose => return Ok(buffer.split().freeze()),
                Self::Broken => return Err("a line of the chunked reply is invalid".into()),
                // The end of the body may already be here, so go on until the next data.
                Self::ChunkEnd | Self::ChunkSize | Self::Trailers(_) => {
                    let next = match take_line(buffer) {
                        Ok(None) => return Ok(data),
                        Ok(Some(line)) => self.after_line(&line),
                        Err(error) => Err(error),
                    };
                    match next {
                        Ok(next) => *self = next,
                        // The data before a broken line is delivered first.
                        Err(_) if !data.is_empty() => {
                            *self = Self::Broken;
                            return Ok(data);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    fn after_line(self, line: &[u8]) -> Result<Self, BoxError> {
        match self {
            Self::ChunkEnd if line.is_empty() => Ok(Self::ChunkSize),
            Self::ChunkEnd => Err("a chunk of the reply is longer than its size".into()),
            Self::Trailers(_) if line.is_empty() => Ok(Self::Length(0)),
            Self::Trailers(before) if before + line.len() <= MAX_LINE_BYTES => {
                Ok(Self::Trailers(before + line.len()))
            }
            Self::Trailers(_) => Err("the trailers of the reply are too long".into()),
            _ => match chunk_size(line).ok_or("a chunk of the reply has an invalid size")? {
                0 => Ok(Self::Trailers(0)),
                size => Ok(Self::ChunkData(size)),
            },
        }
    }
}

/// Reads the size at the start of a chunk. Extensions after `;` have no meaning here.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next()?.trim_ascii_end();
    let hex = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(size).ok().filter(|_| hex)?, 16).ok()
}

/// Takes a line from the buffer, without its end. `None` if it is not complete yet.
fn take_line(buffer: &mut BytesMut) -> Result<Option<BytesMut>, BoxError> {
    let end = memchr::memchr(b'\n', buffer);
    if end.unwrap_or(buffer.len()) > MAX_LINE_BYTES {
        return Err("a line of the chunked reply is too long".into());
    }
    let Some(end) = end else { return Ok(None) };
    let mut line = buffer.split_to(end + 1);
    if !line.ends_with(b"\r\n") {
        return Err("a line of the chunked reply has no proper end".into());
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

/// The elements of a header that is a list, in lower case.
fn tokens(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|token| String::from_utf8_lossy(token.trim_ascii()).to_ascii_lowercase())
        .filter(|token| !token.is_empty())
        .collect()
}
