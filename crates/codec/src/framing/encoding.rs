//! Undoes content encodings piece by piece. We must read a compressed request to filter it, and a
//! provider may compress a reply although we asked for plain bytes.

use std::io::{self, Write};

/// The content encoding of one message body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Not compressed.
    Identity,
    /// gzip.
    Gzip,
    /// zlib, which HTTP calls `deflate`.
    Deflate,
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstd,
}

impl Encoding {
    /// Reads a `content-encoding` value. Returns `None` for unknown encodings and for several
    /// encodings at once.
    pub fn from_header(value: &str) -> Option<Self> {
        match value.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "deflate" => Some(Self::Deflate),
            "br" => Some(Self::Brotli),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum EncodingError {
    /// The unpacked body is larger than allowed.
    #[error("the body is larger than {limit} bytes when unpacked")]
    TooLarge {
        /// Largest number of bytes allowed.
        limit: usize,
    },
    /// The bytes do not match the content encoding in the header.
    #[error("the body is not valid for its content encoding")]
    Broken(#[source] io::Error),
}

/// Unpacks a body that arrives in pieces.
pub struct Decoder {
    inner: Inner,
}

enum Inner {
    Identity(Sink),
    Gzip(Box<flate2::write::MultiGzDecoder<Sink>>),
    Deflate(Box<flate2::write::ZlibDecoder<Sink>>),
    Brotli(Box<brotli_decompressor::DecompressorWriter<Sink>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Sink>>),
}

/// Collects at most `limit` unpacked bytes per push, so that a small body cannot fill the memory.
struct Sink {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Decoder")
    }
}

impl Decoder {
    /// Creates a decoder that returns at most `limit` unpacked bytes per push.
    pub fn new(encoding: Encoding, limit: usize) -> Result<Self, EncodingError> {
        let sink = Sink { bytes: Vec::new(), limit };
        let inner = match encoding {
            Encoding::Identity => Inner::Identity(sink),
            Encoding::Gzip => Inner::Gzip(Box::new(flate2::write::MultiGzDecoder::new(sink))),
            Encoding::Deflate => Inner::Deflate(Box::new(flate2::write::ZlibDecoder::new(sink))),
            Encoding::Brotli => {
                Inner::Brotli(Box::new(brotli_decompressor::DecompressorWriter::new(sink, 4096)))
            }
            Encoding::Zstd => Inner::Zstd(Box::new(
                zstd::stream::write::Decoder::new(sink).map_err(EncodingError::Broken)?,
            )),
        };
        Ok(Self { inner })
    }

    /// Unpacks the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, EncodingError> {
        let written = match &mut self.inner {
            Inner::Identity(sink) => sink.write_all(bytes),
            Inner::Gzip(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Inner::Deflate(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Inner::Brotli(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
            Inner::Zstd(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
        };
        let sink = match &mut self.inner {
            Inner::Identity(sink) => sink,
            Inner::Gzip(decoder) => decoder.get_mut(),
            Inner::Deflate(decoder) => decoder.get_mut(),
            Inner::Brotli(decoder) => decoder.get_mut(),
            Inner::Zstd(decoder) => decoder.get_mut(),
        };
        match written {
            Ok(()) => Ok(std::mem::take(&mut sink.bytes)),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(EncodingError::TooLarge { limit: sink.limit })
            }
            Err(error) => Err(EncodingError::Broken(error)),
        }
    }
}

/// Unpacks a whole body. A body that stops early is unpacked as far as it goes. Its content is then
/// incomplete JSON, which the reader rejects.
pub fn unpack(encoding: Encoding, bytes: &[u8], limit: usize) -> Result<Vec<u8>, EncodingError> {
    Decoder::new(encoding, limit)?.push(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(encoding: Encoding, text: &[u8]) -> Vec<u8> {
        match encoding {
            Encoding::Identity => text.to_vec(),
            Encoding::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Encoding::Deflate => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            Encoding::Zstd => zstd::encode_all(text, 3).unwrap(),
            // A Brotli stream of one stored block, written by hand: no encoder is available.
            Encoding::Brotli => {
                assert_eq!(text, b"hello");
                vec![0x0b, 0x02, 0x80, b'h', b'e', b'l', b'l', b'o', 0x03]
            }
        }
    }

    #[test]
    fn every_encoding_unpacks_byte_by_byte() {
        for encoding in [
            Encoding::Identity,
            Encoding::Gzip,
            Encoding::Deflate,
            Encoding::Brotli,
            Encoding::Zstd,
        ] {
            let bytes = packed(encoding, b"hello");
            let mut decoder = Decoder::new(encoding, 100).unwrap();
            let mut text = Vec::new();
            for byte in &bytes {
                text.extend(decoder.push(std::slice::from_ref(byte)).unwrap());
            }
            assert_eq!(text, b"hello", "{encoding:?}");
        }
    }

    #[test]
    fn a_small_body_cannot_unpack_to_a_huge_one() {
        for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Zstd] {
            let bomb = packed(encoding, &vec![b' '; 10_000_000]);
            assert!(bomb.len() < 20_000);
            assert!(matches!(
                unpack(encoding, &bomb, 1_000_000),
                Err(EncodingError::TooLarge { limit: 1_000_000 })
            ));
        }
    }

    #[test]
    fn rejects_a_body_that_does_not_match_its_encoding() {
        assert!(matches!(
            unpack(Encoding::Gzip, b"{\"not\":\"gzip\"}", 1000),
            Err(EncodingError::Broken(_))
        ));
        assert_eq!(Encoding::from_header("compress"), None);
        assert_eq!(Encoding::from_header(" GZIP "), Some(Encoding::Gzip));
    }
}
