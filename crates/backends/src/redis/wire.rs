//! The names and the bytes in Redis.
//!
//! - `throughline:run:ID` is a stream and a channel. An entry of the stream is a piece of the log; its id is `0-`
//!   and the number of the piece's last entry, so Redis refuses a piece that it has.
//! - `throughline:room:ID` is a channel.
//!
//! A message on these channels is a letter and what belongs to it: `P` with the numbers of a piece and its
//! sealed entries, `E` for the end of a run, `C` with the instance that has changed a room.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};
use throughline_conversations::bus::chat_stream::ChatMessage;
use throughline_conversations::bus::{News, Topic};
use throughline_conversations::store::Piece;

const RUN: &str = "throughline:run:";
const ROOM: &str = "throughline:room:";
/// About how many pieces a stream has at most. Older ones are in the store.
const MAX_PIECES: usize = 1_000;

/// Something to publish.
#[derive(Debug)]
pub(super) enum Order {
    /// News for other instances.
    Tell(Topic, News),
    /// A message for other programs.
    Send(ChatMessage),
}

impl Order {
    /// The bytes that it occupies.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Tell(_, News::Piece(piece)) => size_of::<Self>() + piece.sealed.len(),
            Self::Tell(..) => size_of::<Self>(),
            Self::Send(ChatMessage { channel, payload }) => {
                size_of::<Self>() + channel.len() + payload.len()
            }
        }
    }

    /// Adds its commands.
    pub(super) fn write(&self, retention: Duration, commands: &mut Pipeline) {
        match self {
            Self::Tell(topic, news) => {
                let channel = channel(topic);
                if let News::Piece(piece) = news {
                    // There is no id 0-0. Who needs that entry reads the store.
                    if piece.last > 0 {
                        commands.add_command(add(&channel, piece)).ignore();
                    }
                    let time = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
                    commands.cmd("PEXPIRE").arg(&channel).arg(time).ignore();
                }
                if let Some(message) = write(news) {
                    commands.cmd("PUBLISH").arg(channel).arg(message).ignore();
                }
            }
            Self::Send(ChatMessage { channel, payload }) => {
                commands.cmd("PUBLISH").arg(channel).arg(payload).ignore();
            }
        }
    }
}

fn add(stream: &str, piece: &Piece) -> Cmd {
    let mut command = cmd("XADD");
    command.arg(stream).arg("MAXLEN").arg("~").arg(MAX_PIECES).arg(format!("0-{}", piece.last));
    command.arg("first").arg(piece.first).arg("sealed").arg(piece.sealed.as_slice());
    command
}

/// The command that reads the pieces of a run after an entry.
pub(super) fn read_stream(run: &str, after: u64, most: usize) -> Cmd {
    let mut command = cmd("XRANGE");
    command.arg(format!("{RUN}{run}")).arg(format!("0-{}", after.saturating_add(1))).arg("+");
    command.arg("COUNT").arg(most);
    command
}

/// The pieces in the answer to that command.
pub(super) fn pieces(answer: Vec<(String, Vec<Value>)>) -> Vec<Piece> {
    let piece = |(id, fields): (String, Vec<Value>)| {
        let last = id.strip_prefix("0-")?.parse().ok()?;
        let [_, Value::BulkString(first), _, Value::BulkString(sealed)] = fields.as_slice() else {
            return None;
        };
        let first = std::str::from_utf8(first).ok()?.parse().ok()?;
        Some(Piece { first, last, continues: false, sealed: sealed.clone() })
    };
    answer.into_iter().map_while(piece).collect()
}

/// The channel of a topic.
pub(super) fn channel(topic: &Topic) -> String {
    match topic {
        Topic::Run(id) => format!("{RUN}{id}"),
        Topic::Room(id) => format!("{ROOM}{id}"),
    }
}

/// The topic of a channel.
pub(super) fn topic(channel: &str) -> Option<Topic> {
    let run = channel.strip_prefix(RUN).map(|id| Topic::Run(id.to_owned()));
    run.or_else(|| channel.strip_prefix(ROOM).map(|id| Topic::Room(id.to_owned())))
}

/// News as a message. `None` if nobody has to be told.
fn write(news: &News) -> Option<Vec<u8>> {
    match news {
        News::Piece(piece) => {
            let mut message = Vec::with_capacity(18 + piece.sealed.len());
            message.extend([b'P', u8::from(piece.continues)]);
            message.extend(piece.first.to_be_bytes());
            message.extend(piece.last.to_be_bytes());
            message.extend(&piece.sealed);
            Some(message)
        }
        News::Ended => Some(b"E".to_vec()),
        News::Changed { instance } => Some([b"C", instance.as_bytes()].concat()),
        News::Missed => None,
    }
}

/// Reads a message. `None` if it is of a newer version.
pub(super) fn read(message: &[u8]) -> Option<News> {
    match message.split_first()? {
        (b'P', rest) => {
            let (continues, rest) = rest.split_first()?;
            let (first, rest) = rest.split_first_chunk()?;
            let (last, sealed) = rest.split_first_chunk()?;
            Some(News::Piece(Arc::new(Piece {
                first: u64::from_be_bytes(*first),
                last: u64::from_be_bytes(*last),
                continues: *continues != 0,
                sealed: sealed.to_vec(),
            })))
        }
        (b'E', []) => Some(News::Ended),
        (b'C', instance) => {
            Some(News::Changed { instance: std::str::from_utf8(instance).ok()?.into() })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use throughline_conversations::bus::suite::piece;

    use super::*;

    #[test]
    fn news_are_read_as_they_were_written() {
        let changed = News::Changed { instance: "instance_1".into() };
        for news in [News::Piece(Arc::new(piece(2, 900))), News::Ended, changed] {
            let message = write(&news).unwrap();
            assert_eq!(read(&message), Some(news));
        }
        assert_eq!(write(&News::Missed), None);
    }

    #[test]
    fn damaged_message_is_left_out() {
        let message = write(&News::Piece(Arc::new(piece(2, 3)))).unwrap();
        for length in 0..18 {
            assert_eq!(read(&message[..length]), None, "{length}");
        }
        for message in [&b"X"[..], b"Ended", b"C\xff"] {
            assert_eq!(read(message), None);
        }
    }

    #[test]
    fn channels_name_their_topic() {
        for known in [Topic::Run("a:b".to_owned()), Topic::Room("c".to_owned())] {
            assert_eq!(topic(&channel(&known)), Some(known));
        }
        assert_eq!(topic("chat_stream::c"), None);
    }
}
