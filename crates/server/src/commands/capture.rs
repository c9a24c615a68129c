//! `throughline capture`: writes a reply of a running gateway to a file, for the simulator to replay.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::Value;

use super::remote::{percent_encode, request};
use super::{Failure, print, print_note};
use crate::cli::{Capture, Remote};

/// Bytes of a reply that the gateway keeps; a reply of this length was cut.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// How many recent turns are searched for a reply.
const MAX_TURNS: usize = 20;

/// Writes the reply and a description of it.
pub async fn run(options: Capture) -> Result<(), Failure> {
    let query = match &options.turn {
        // Ids grow with time, and `after` excludes older turns. A shortened id includes the turn itself.
        Some(id) => {
            let before: String = id.chars().take(id.chars().count().max(1) - 1).collect();
            format!("limit=1000&after={}", percent_encode(&before))
        }
        None => format!("limit={MAX_TURNS}"),
    };
    let remote = Remote { url: options.url, config: options.config, json: false };
    let path = format!("/admin/turns?{query}");
    let answer = request(&remote, Method::GET, &path, None).await?;
    let turns: Vec<Turn<'_>> = answer["turns"].as_array().into_iter().flatten().map(Turn).collect();
    let turn = find_turn(&turns, options.turn.as_deref())?;
    let reply = turn.reply()?;
    let files = CaptureFiles::new(&options.out, reply);
    files.write(reply, &turn.about(), options.force)?;
    if reply.contains('\u{fffd}') {
        print_note(
            "the reply contains U+FFFD: the provider sent it, or sent bytes that are not UTF-8, which the gateway does not keep",
        );
    }
    print(&format!(
        "{}: {} bytes, turn {} of {}\n{}: describe what is special about the reply here",
        files.reply.display(),
        reply.len(),
        turn.text("id"),
        turn.text("backend"),
        files.about.display(),
    ));
    Ok(())
}

/// Finds the turn with this id, or the newest turn with a reply.
fn find_turn<'a>(turns: &'a [Turn<'a>], id: Option<&str>) -> Result<&'a Turn<'a>, Failure> {
    let found = match id {
        Some(id) => turns.iter().find(|turn| turn.text("id") == id),
        None => {
            let newest = turns.iter().find(|turn| !turn.0["received"].is_null());
            newest.or(turns.first())
        }
    };
    found.ok_or_else(|| {
        Failure::Failed(match id {
            Some(id) => format!("the gateway has no turn `{id}`; `throughline turns` lists them"),
            None => "the gateway has no turn yet".to_owned(),
        })
    })
}

/// A turn as `/admin/turns` reports it.
struct Turn<'a>(&'a Value);

impl Turn<'_> {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    /// The whole reply, or why there is none.
    fn reply(&self) -> Result<&str, Failure> {
        let id = self.text("id");
        let failed = |why: &str| Err(Failure::Failed(format!("turn `{id}` {why}")));
        match self.0["received"].as_str() {
            Some(reply) if reply.len() >= MAX_KEPT_BYTES => failed(
                "has a reply of which the gateway kept only the first 1 MiB; the capture would not be whole",
            ),
            Some(reply) => Ok(reply),
            None if self.0["sent"].is_null() => failed(
                "was kept without its content; set `enabled = true` and `full_body = true` in `[debug_log]` of the gateway's configuration, restart the gateway, and send the request again",
            ),
            None if self.text("end").is_empty() => failed("is still in progress"),
            None => failed(&format!("has no stored reply: {}", self.text("error"))),
        }
    }

    /// The description of the reply, in the corpus's format. It has no headers, so it has no API keys.
    fn about(&self) -> String {
        let quoted = |key: &str| toml_edit::Value::from(self.text(key)).to_string();
        format!(
            "# Describe what is special about this reply, and what was removed from it.\n\
             special = \"\"\n\
             source = \"throughline capture\"\n\
             backend = {}\n\
             model = {}\n\
             path = {}\n\
             time = \"{}\"\n\
             status = {}\n\
             end = {}\n",
            quoted("backend"),
            quoted("upstream_model"),
            quoted("path"),
            utc_time(self.0["time"].as_u64().unwrap_or_default()),
            self.0["status"],
            quoted("end"),
        )
    }
}

/// The files of a capture.
struct CaptureFiles {
    reply: PathBuf,
    about: PathBuf,
}

impl CaptureFiles {
    /// A reply that starts with `{` is one JSON document; any other is an event stream.
    fn new(out: &str, reply: &str) -> Self {
        let extensions = [".sse", ".json"];
        let stem = extensions.iter().find_map(|extension| out.strip_suffix(extension));
        let stem = stem.unwrap_or(out);
        let extension = if reply.trim_start().starts_with('{') { "json" } else { "sse" };
        Self {
            reply: format!("{stem}.{extension}").into(),
            about: format!("{stem}.about.toml").into(),
        }
    }

    fn write(&self, reply: &str, about: &str, force: bool) -> Result<(), Failure> {
        let files = [(&self.reply, reply), (&self.about, about)];
        // Checked before the first file is written, so that no half capture remains.
        let existing = files.iter().find(|(path, _)| !force && path.exists());
        if let Some((path, _)) = existing {
            return Err(Failure::Failed(format!(
                "`{}` already exists; choose another name, or use `--force`",
                path.display()
            )));
        }
        for (path, text) in files {
            create(path, force).and_then(|mut file| file.write_all(text.as_bytes())).map_err(
                |error| Failure::Failed(format!("cannot write `{}`: {error}", path.display())),
            )?;
        }
        Ok(())
    }
}

fn create(path: &Path, force: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    options.open(path)
}

/// Formats milliseconds since 1970 as an RFC 3339 time in UTC.
fn utc_time(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (mut days, rest) = (seconds / 86400, seconds % 86400);
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let day = days + 1;
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc_time(seconds * 1000 + 999), text);
        }
    }
}
