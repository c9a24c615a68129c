//! Prints the results as Markdown tables.

use crate::measure::{Effort, Entry, Figures};
use crate::subjects::{Format, Subject};

/// Prints how the run was done.
pub(crate) fn heading(effort: Effort) {
    println!("# Readers of model text, side by side\n");
    println!(
        "Best of {} rounds, the subjects in turn. The floor is a scan for `<` and a copy of the \
         piece. A run is broken off after {} s. Output is compared with what the text says, but \
         for white space; arguments are compared as JSON. Allocations are counted from the second \
         tenth of a text on.",
        effort.rounds,
        effort.cap.as_secs()
    );
}

/// Prints the cost of a piece for each reader.
pub(crate) fn pieces(entries: &[Entry<'_>], figures: &[Figures]) {
    let calls = entries.iter().any(|entry| entry.format != Format::Tags);
    if calls {
        println!(
            "| format | subject | ns per piece | times ours | allocations per piece | \
             parts of arguments | output |"
        );
        println!("|---|---|---:|---:|---:|---:|---|");
    } else {
        println!("| subject | ns per piece | times ours | allocations per piece | output |");
        println!("|---|---:|---:|---:|---|");
    }
    for (entry, found) in entries.iter().zip(figures) {
        let ours = entries
            .iter()
            .zip(figures)
            .find(|(other, _)| other.subject == Subject::Ours && other.format == entry.format)
            .map_or(f64::NAN, |(_, figures)| figures.nanoseconds());
        let more = if found.complete { "" } else { "> " };
        let (count, over) = found.allocations;
        let mut cells = vec![
            format!("{}{}", entry.subject.name(entry.format), entry.note),
            format!("{more}{:.1}", found.nanoseconds()),
            format!("{more}{:.1}", found.nanoseconds() / ours),
            format!("{:.2} ({count})", count as f64 / over as f64),
        ];
        if calls {
            cells.insert(0, format_name(entry.format).to_owned());
            cells.push(found.deltas.to_string());
        }
        cells.push(if found.complete {
            output_cell(entry.subject, found.difference)
        } else {
            format!("broken off at piece {}", found.pieces)
        });
        println!("| {} |", cells.join(" | "));
    }
}

fn output_cell(subject: Subject, difference: Option<&str>) -> String {
    match (subject, difference) {
        (Subject::Floor, _) => String::new(),
        (_, None) => "right".to_owned(),
        (_, Some(what)) => format!("wrong: {what}"),
    }
}

/// A size, a reader, a format, the speed in GB/s, and what is wrong with the output.
type Speed = (&'static str, Subject, Format, f64, Option<&'static str>);

/// Prints the speed of each reader.
pub(crate) fn speeds(rows: &[Speed]) {
    println!("| size | format | subject | GB/s | output |");
    println!("|---:|---|---|---:|---|");
    for (size, subject, format, speed, difference) in rows {
        // The speed of a wrong reading means nothing.
        let speed = match (subject, difference) {
            (Subject::Floor, _) | (_, None) => format!("{speed:.2}"),
            (_, Some(_)) => String::new(),
        };
        println!(
            "| {size} | {} | {} | {speed} | {} |",
            format_name(*format),
            subject.name(*format),
            output_cell(*subject, *difference),
        );
    }
}

/// Prints the cost of a byte at each size.
pub(crate) fn costs<const N: usize>(sizes: [&str; N], rows: &[(String, [f64; N])]) {
    println!("| text | {} | most : least |", sizes.join(" | "));
    println!("|---|{}", "---:|".repeat(N + 1));
    for (name, costs) in rows {
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = costs.iter().copied().fold(0.0, f64::max);
        let cells: Vec<String> = costs.iter().map(|cost| format!("{cost:.2}")).collect();
        println!("| {name} | {} | {:.2} |", cells.join(" | "), most / least);
    }
}

/// Our name for a format.
pub(crate) fn format_name(format: Format) -> &'static str {
    match format {
        Format::Tags => "tags",
        Format::Hermes => "hermes",
        Format::Mistral => "mistral",
        Format::Qwen3Coder => "qwen3_coder",
        Format::Pythonic => "pythonic",
        Format::KimiK2 => "kimi_k2",
    }
}
