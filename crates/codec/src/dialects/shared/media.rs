//! Media types and addresses of media.

use throughline_canonical::{MediaKind, Source};

/// Reads an address. A `data:` address becomes inline data; `None` if it is malformed or empty.
pub(crate) fn read_url(url: &str) -> Option<Source> {
    let Some(rest) = url.strip_prefix("data:") else {
        return (!url.is_empty()).then(|| Source::Url { url: url.to_owned(), media_type: None });
    };
    let (media_type, data) = rest.split_once(";base64,")?;
    Some(Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() })
}

/// The kind of media that a media type such as `image/png` names.
pub(crate) fn media_kind(media_type: &str) -> MediaKind {
    match media_type.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Document,
    }
}
