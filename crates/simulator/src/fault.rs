//! Faults: their notation and their effect on a reply.
//!
//! Input are the frames of a reply, one per event; output are steps for the delivery. Status faults
//! and head delays act before a reply exists, so `exchange` handles them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

/// One fault of a reply.
///
/// In the notation `event=N` always means "after N events have been sent",
/// the ping included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `cut:bytes=N`: the connection breaks after that many body bytes.
    CutBytes(usize),
    /// `cut:event=N`: the connection breaks after that many events.
    CutEvent(usize),
    /// `end:event=N`: the body ends cleanly, but too early.
    End(usize),
    /// `stall:event=N,ms=M`: silence, then the stream goes on.
    Stall { event: usize, time: Duration },
    /// `head-delay:ms=M`: the response head is late.
    HeadDelay(Duration),
    /// `status:429,retry-after=2`: a refusal instead of a reply.
    Status { code: u16, retry_after: Option<u32> },
    /// `garbage`, `garbage:event=N`: bytes that are not events, as the whole body or between two
    /// events.
    Garbage(Option<usize>),
    /// `error:event=N`: an error event ends the stream.
    Error(usize),
    /// `no-ping`: no ping events.
    NoPing,
    /// `chunk:bytes=N`: the body is written in pieces of N bytes.
    Chunk(usize),
    /// `crlf`: lines end in CR LF.
    Crlf,
}

/// Why a fault's notation is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultError {
    /// The name is unknown.
    #[error(
        "unknown fault `{0}`; use one of cut, end, stall, head-delay, status, garbage, error, no-ping, chunk, crlf"
    )]
    Unknown(String),
    /// A parameter the fault needs is absent.
    #[error("fault `{fault}` needs `{parameter}`")]
    Missing {
        /// The fault as written.
        fault: String,
        /// The missing parameter.
        parameter: &'static str,
    },
    /// A parameter is not a number, out of range or unknown to this fault.
    #[error("invalid parameter `{parameter}` for fault `{fault}`")]
    Parameter {
        /// The fault as written.
        fault: String,
        /// The offending part.
        parameter: String,
    },
}

/// Reads a list of faults separated by `;`.
pub(crate) fn read(text: &str) -> Result<Vec<Fault>, FaultError> {
    text.split(';').map(str::trim).filter(|fault| !fault.is_empty()).map(read_one).collect()
}

fn read_one(text: &str) -> Result<Fault, FaultError> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut bytes = None;
    let mut event = None;
    let mut milliseconds = None;
    let mut retry_after = None;
    let mut bare = None;
    for part in rest.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or(("", part));
        let refused =
            || FaultError::Parameter { fault: text.to_owned(), parameter: part.to_owned() };
        let number: u32 = value.trim().parse().map_err(|_| refused())?;
        let slot = match (name, key.trim()) {
            ("cut" | "chunk", "bytes") => &mut bytes,
            ("cut" | "end" | "stall" | "garbage" | "error", "event") => &mut event,
            ("stall" | "head-delay", "ms") => &mut milliseconds,
            ("status", "retry-after") => &mut retry_after,
            ("status", "") => &mut bare,
            _ => return Err(refused()),
        };
        *slot = Some(number);
    }
    let need = |value: Option<u32>, parameter: &'static str| {
        value.ok_or(FaultError::Missing { fault: text.to_owned(), parameter })
    };
    let index = |value: Option<u32>| need(value, "event=N").map(|number| number as usize);
    let time = |value: Option<u32>| {
        need(value, "ms=N").map(|number| Duration::from_millis(u64::from(number)))
    };
    Ok(match name {
        "cut" => match bytes {
            Some(bytes) => Fault::CutBytes(bytes as usize),
            None => Fault::CutEvent(index(event)?),
        },
        "end" => Fault::End(index(event)?),
        "stall" => Fault::Stall { event: index(event)?, time: time(milliseconds)? },
        "head-delay" => Fault::HeadDelay(time(milliseconds)?),
        "status" => {
            let code = need(bare, "a status code")?;
            let code = u16::try_from(code)
                .ok()
                .filter(|code| (400..600).contains(code))
                .ok_or_else(|| FaultError::Parameter {
                    fault: text.to_owned(),
                    parameter: code.to_string(),
                })?;
            Fault::Status { code, retry_after }
        }
        "garbage" => Fault::Garbage(event.map(|number| number as usize)),
        "error" => Fault::Error(index(event)?),
        "no-ping" => Fault::NoPing,
        "chunk" => Fault::Chunk(need(bytes, "bytes=N")?.max(1) as usize),
        "crlf" => Fault::Crlf,
        _ => return Err(FaultError::Unknown(name.to_owned())),
    })
}

/// One event of a reply, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    /// The token times that pass before it, if replies are paced.
    pub(crate) tokens: u32,
}

impl Frame {
    /// An event of one line of data, with a name in the dialects that give one.
    pub(crate) fn event(name: Option<&str>, data: &Value) -> Self {
        let bytes = match name {
            Some(name) => format!("event: {name}\ndata: {data}\n\n"),
            None => format!("data: {data}\n\n"),
        };
        Self { bytes: bytes.into(), tokens: 0 }
    }
}

/// One action of the delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Send(Bytes),
    /// Flush what was sent before going on.
    Flush,
    Pace(u32),
    Wait(Duration),
    /// Break the connection.
    Abort,
}

/// Bytes that no event reader understands: no field names, no UTF-8, no blank line.
pub(crate) const GARBAGE: &[u8] = b"<html>\x00\xff\xfe 502 {\"type\": garbage\r";

/// Turns frames into steps and inserts the faults.
///
/// `error` is the dialect's error event.
pub(crate) fn steps(frames: Vec<Frame>, faults: &[Fault], error: &Bytes) -> Vec<Step> {
    let mut steps = Vec::with_capacity(frames.len() + 4);
    if faults.contains(&Fault::Garbage(None)) {
        steps.push(Step::Send(Bytes::from_static(GARBAGE)));
    } else {
        let total = frames.len();
        let mut ended = false;
        for (index, frame) in frames.into_iter().enumerate() {
            ended = strike(&mut steps, faults, index, error);
            if ended {
                break;
            }
            if frame.tokens > 0 {
                steps.push(Step::Pace(frame.tokens));
            }
            steps.push(Step::Send(frame.bytes));
        }
        if !ended {
            strike(&mut steps, faults, total, error);
        }
    }
    for fault in faults {
        match fault {
            Fault::Crlf => steps.iter_mut().for_each(write_crlf),
            Fault::CutBytes(limit) => cut(&mut steps, *limit),
            _ => {}
        }
    }
    for fault in faults {
        if let Fault::Chunk(size) = fault {
            steps = chunk(steps, *size);
        }
    }
    steps
}

/// Applies the faults due before event `index`. Returns whether the reply ends here.
fn strike(steps: &mut Vec<Step>, faults: &[Fault], index: usize, error: &Bytes) -> bool {
    for fault in faults {
        match fault {
            Fault::Stall { event, time } if *event == index => steps.push(Step::Wait(*time)),
            Fault::Garbage(Some(event)) if *event == index => {
                steps.push(Step::Send(Bytes::from_static(GARBAGE)));
            }
            Fault::CutEvent(event) if *event == index => {
                steps.push(Step::Abort);
                return true;
            }
            Fault::End(event) if *event == index => return true,
            Fault::Error(event) if *event == index => {
                steps.push(Step::Send(error.clone()));
                return true;
            }
            _ => {}
        }
    }
    false
}

fn write_crlf(step: &mut Step) {
    if let Step::Send(bytes) = step
        && bytes.as_ref() != GARBAGE
    {
        let mut written = Vec::with_capacity(bytes.len() + 8);
        for &byte in bytes.iter() {
            // A replayed capture may have such line ends already.
            if byte == b'\n' && !written.ends_with(b"\r") {
                written.push(b'\r');
            }
            written.push(byte);
        }
        *bytes = written.into();
    }
}

fn cut(steps: &mut Vec<Step>, limit: usize) {
    let mut sent = 0;
    let hit = steps.iter_mut().position(|step| match step {
        Step::Send(bytes) if sent + bytes.len() > limit => {
            bytes.truncate(limit - sent);
            true
        }
        Step::Send(bytes) => {
            sent += bytes.len();
            false
        }
        _ => false,
    });
    if let Some(last) = hit {
        steps.truncate(last + 1);
        steps.push(Step::Abort);
    }
}

fn chunk(steps: Vec<Step>, size: usize) -> Vec<Step> {
    let mut chunked = Vec::new();
    let mut held = Vec::new();
    for step in steps {
        match step {
            Step::Send(bytes) => {
                held.extend_from_slice(&bytes);
                let whole = held.len() - held.len() % size;
                for piece in held.drain(..whole).as_slice().chunks(size) {
                    chunked.push(Step::Send(Bytes::copy_from_slice(piece)));
                    chunked.push(Step::Flush);
                }
            }
            other => {
                if !held.is_empty() && matches!(other, Step::Wait(_) | Step::Abort) {
                    chunked.push(Step::Send(std::mem::take(&mut held).into()));
                    chunked.push(Step::Flush);
                }
                chunked.push(other);
            }
        }
    }
    if !held.is_empty() {
        chunked.push(Step::Send(held.into()));
    }
    chunked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_fault_notation() {
        let table: [(&str, Fault); 13] = [
            ("cut:bytes=10", Fault::CutBytes(10)),
            ("cut:event=3", Fault::CutEvent(3)),
            ("end:event=2", Fault::End(2)),
            ("stall:event=4,ms=50", Fault::Stall { event: 4, time: Duration::from_millis(50) }),
            ("head-delay:ms=7", Fault::HeadDelay(Duration::from_millis(7))),
            ("status:429,retry-after=2", Fault::Status { code: 429, retry_after: Some(2) }),
            ("status:529", Fault::Status { code: 529, retry_after: None }),
            ("garbage", Fault::Garbage(None)),
            ("garbage:event=1", Fault::Garbage(Some(1))),
            ("error:event=6", Fault::Error(6)),
            ("no-ping", Fault::NoPing),
            ("chunk:bytes=5", Fault::Chunk(5)),
            ("crlf", Fault::Crlf),
        ];
        for (text, fault) in table {
            assert_eq!(read(text), Ok(vec![fault]), "{text}");
        }
        assert_eq!(read("crlf; chunk:bytes=1"), Ok(vec![Fault::Crlf, Fault::Chunk(1)]));
    }

    #[test]
    fn error_names_the_invalid_fault() {
        for (text, part) in [
            ("explode", "`explode`"),
            ("cut", "`event=N`"),
            ("stall:event=1", "`ms=N`"),
            ("status:99", "`99`"),
            ("status:retry-after=2", "a status code"),
            ("cut:bytes=many", "`bytes=many`"),
            ("crlf:event=1", "`event=1`"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    fn run(faults: &str) -> Vec<Step> {
        let frames = ["one\n", "two\n", "six\n"]
            .map(|text| Frame { bytes: Bytes::from_static(text.as_bytes()), tokens: 0 })
            .to_vec();
        steps(frames, &read(faults).unwrap(), &Bytes::from_static(b"bad\n"))
    }

    fn send(text: &'static str) -> Step {
        Step::Send(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn fault_acts_at_its_event() {
        let garbage = || Step::Send(Bytes::from_static(GARBAGE));
        let wait = Step::Wait(Duration::from_millis(9));
        let table: [(&str, Vec<Step>); 9] = [
            ("cut:bytes=5", vec![send("one\n"), send("t"), Step::Abort]),
            ("cut:event=1", vec![send("one\n"), Step::Abort]),
            ("cut:event=3", vec![send("one\n"), send("two\n"), send("six\n"), Step::Abort]),
            ("end:event=2", vec![send("one\n"), send("two\n")]),
            ("stall:event=1,ms=9", vec![send("one\n"), wait, send("two\n"), send("six\n")]),
            ("error:event=1", vec![send("one\n"), send("bad\n")]),
            ("garbage", vec![garbage()]),
            ("garbage:event=2", vec![send("one\n"), send("two\n"), garbage(), send("six\n")]),
            ("crlf;end:event=1", vec![send("one\r\n")]),
        ];
        for (text, expected) in table {
            assert_eq!(run(text), expected, "{text}");
        }
    }

    #[test]
    fn chunk_fault_sets_the_chunk_size() {
        let sizes: Vec<usize> = run("chunk:bytes=5")
            .iter()
            .filter_map(|step| match step {
                Step::Send(bytes) => Some(bytes.len()),
                _ => None,
            })
            .collect();
        assert_eq!(sizes, [5, 5, 2]);
    }
}
