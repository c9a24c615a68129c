//! `throughline capture`: a reply of a running gateway as a file, to be replayed or kept among the
//! captures. What a scenario makes of it is the simulator's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http::Method;
use serde_json::Value;

use super::remote::{ask, escape};
use super::{Failure, print, say};
use crate::cli::{Capture, Remote};

/// So much of a reply does the gateway keep; what is as long was cut there.
const KEPT: usize = 1 << 20;

/// Among so many turns a reply is looked for.
const RECENT: usize = 20;

/// Writes the reply and what is known about it.
pub async fn run(options: Capture) -> Result<(), Failure> {
    let query = match &options.turn {
        // Ids grow with time: what begins like this one is listed with it, older ones are not.
        Some(id) => {
            let begin: String = id.chars().take(id.chars().count().max(1) - 1).collect();
            format!("limit=1000&after={}", escape(&begin))
        }
        None => format!("limit={RECENT}"),
    };
    let remote = Remote { url: options.url, config: options.config, json: false };
    let path = format!("/admin/turns?{query}");
    let answer = ask(&remote, Method::GET, &path, None).await?;
    let turns: Vec<Turn<'_>> = answer["turns"].as_array().into_iter().flatten().map(Turn).collect();
    let turn = choose(&turns, options.turn.as_deref())?;
    let reply = turn.reply()?;
    let name = Names::of(&options.out, reply);
    name.write(reply, &turn.about(), options.force)?;
    if reply.contains('\u{fffd}') {
        say(
            "the reply holds U+FFFD: the provider wrote it, or wrote bytes that are no UTF-8, which are not kept",
        );
    }
    print(&format!(
        "{}: {} bytes, turn {} of {}\n{}: fill in what is special about it",
        name.reply.display(),
        reply.len(),
        turn.text("id"),
        turn.text("backend"),
        name.about.display(),
    ));
    Ok(())
}

/// The turn that is meant: the one of this id, or the newest whose reply is there.
fn choose<'a>(turns: &'a [Turn<'a>], id: Option<&str>) -> Result<&'a Turn<'a>, Failure> {
    let found = match id {
        Some(id) => turns.iter().find(|turn| turn.text("id") == id),
        None => {
            let whole = turns.iter().find(|turn| !turn.0["received"].is_null());
            whole.or(turns.first())
        }
    };
    found.ok_or_else(|| {
        Failure::Failed(match id {
            Some(id) => format!("the gateway keeps no turn `{id}`; `throughline turns` lists them"),
            None => "the gateway has had no turn yet".to_owned(),
        })
    })
}

/// A turn as the gateway tells it.
struct Turn<'a>(&'a Value);

impl Turn<'_> {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    /// The whole reply, or why it is not to be had.
    fn reply(&self) -> Result<&str, Failure> {
        let id = self.text("id");
        let failed = |why: &str| Err(Failure::Failed(format!("turn `{id}` {why}")));
        match self.0["received"].as_str() {
            Some(reply) if reply.len() >= KEPT => failed(
                "has a reply of which the gateway kept the first 1 MiB only; a capture would not be whole",
            ),
            Some(reply) => Ok(reply),
            None if self.0["sent"].is_null() => failed(
                "was kept without its contents; set `enabled = true` and `full_body = true` in `[debug_log]` of the gateway's configuration, restart it, and ask the model again",
            ),
            None if self.text("end").is_empty() => failed("is still under way"),
            None => failed(&format!("has no reply that was kept: {}", self.text("error"))),
        }
    }

    /// What is known, one key a line as the corpus has it. Headers are not, so neither are keys.
    fn about(&self) -> String {
        let quoted = |key: &str| toml_edit::Value::from(self.text(key)).to_string();
        format!(
            "# Say what is special about it, and what was cut out of it.\n\
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
            moment(self.0["time"].as_u64().unwrap_or_default()),
            self.0["status"],
            quoted("end"),
        )
    }
}

/// The files that are written.
struct Names {
    reply: PathBuf,
    about: PathBuf,
}

impl Names {
    /// A reply is one document or a stream of events; its first letter tells.
    fn of(out: &str, reply: &str) -> Self {
        let kinds = [".sse", ".json"];
        let bare = kinds.iter().find_map(|kind| out.strip_suffix(kind));
        let bare = bare.unwrap_or(out);
        let kind = if reply.trim_start().starts_with('{') { "json" } else { "sse" };
        Self { reply: format!("{bare}.{kind}").into(), about: format!("{bare}.about.toml").into() }
    }

    fn write(&self, reply: &str, about: &str, force: bool) -> Result<(), Failure> {
        let files = [(&self.reply, reply), (&self.about, about)];
        // Before the first is written: half a capture helps nobody.
        let taken = files.iter().find(|(path, _)| !force && path.exists());
        if let Some((path, _)) = taken {
            return Err(Failure::Failed(format!(
                "`{}` is there already; choose another name, or say `--force`",
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

/// A time in milliseconds since 1970 as people write it, in UTC.
fn moment(milliseconds: u64) -> String {
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
    fn moments_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(moment(seconds * 1000 + 999), text);
        }
    }
}
