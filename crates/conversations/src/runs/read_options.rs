//! What the reader of a run asks for, in the query and the headers of its request. All paths that
//! stream a run read it here.

use http::HeaderMap;
use throughline_canonical::Fault;
use throughline_codec::dialects::resumable::{Kinds, LogCursor, ReplyFormat};
use throughline_codec::dialects::segments::query_value;

/// The header of a cursor. Browsers send it when they reconnect.
const LAST_EVENT_ID: &str = "last-event-id";

/// What a reader asks for. An empty value is the same as none.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The cursor, as the reader wrote it.
    pub after: Option<String>,
    /// The format, if the reader names one.
    pub format: Option<ReplyFormat>,
    /// The kinds of blocks.
    pub kinds: Kinds,
}

impl ReadOptions {
    /// Reads the query and the headers of a request.
    pub fn read(query: Option<&str>, headers: &HeaderMap) -> Result<Self, Fault> {
        let query = query.unwrap_or_default();
        let value = |name| query_value(query, name).filter(|value| !value.is_empty());
        let header = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
        // A browser that reconnects repeats its query, and its header is newer.
        let header = header.filter(|id| !id.is_empty()).map(str::to_owned);
        let format = value("format").map(|name| ReplyFormat::read(&name)).transpose()?;
        let kinds = value("kinds").map(|list| Kinds::read(&list)).transpose()?;
        Ok(Self {
            after: header.or_else(|| value("after")),
            format,
            kinds: kinds.unwrap_or(Kinds::ALL),
        })
    }

    /// The position in the log of one run.
    pub fn cursor(&self) -> Result<Option<LogCursor>, Fault> {
        self.after.as_deref().map(LogCursor::read).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_a_reconnecting_browser_replaces_the_cursor_of_its_query() {
        for (query, header, expected) in [
            (Some("after=3"), None, Some("3")),
            (Some("after=3"), Some("7.1"), Some("7.1")),
            (Some("after=3"), Some(""), Some("3")),
            (Some("after=&format=&kinds="), None, None),
            (Some("after=run%3A3"), None, Some("run:3")),
            (None, Some("7"), Some("7")),
            (None, None, None),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(id) = header {
                headers.insert(LAST_EVENT_ID, id.parse().unwrap());
            }
            let read = ReadOptions::read(query, &headers).unwrap();
            assert_eq!(read.after.as_deref(), expected, "{query:?} {header:?}");
            assert!(read.format.is_none(), "{query:?}");
        }
    }

    #[test]
    fn unknown_format_and_unknown_kind_are_refused() {
        for query in ["format=xml", "kinds=text,pictures"] {
            assert!(ReadOptions::read(Some(query), &HeaderMap::new()).is_err(), "{query}");
        }
    }
}
