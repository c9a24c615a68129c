//! Compares our reader of model text with other readers: the same texts in one run, printed as
//! Markdown. This file chooses the texts of each reader; `measure` measures.

mod allocations;
mod cases;
mod inputs;
mod measure;
mod sink;
mod subjects;
mod tables;

use std::process::ExitCode;
use std::time::Duration;

use inputs::Input;
use measure::{Effort, Entry};
use subjects::{Format, Subject};

const FULL: Effort = Effort { rounds: 9, cap: Duration::from_secs(4) };
const QUICK: Effort = Effort { rounds: 2, cap: Duration::from_secs(1) };

const MEGABYTE: usize = 1_000_000;

/// Markers that `reasoning-parser` and `tool-parser` miss when they are cut.
const TAGS: [&str; 2] = ["<think>", "</think>"];
const KIMI_K2: [&str; 3] =
    ["<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let effort = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => FULL,
        ["--quick"] => QUICK,
        _ => {
            eprintln!("throughline-bench takes only `--quick`");
            return ExitCode::from(2);
        }
    };
    tables::heading(effort);
    tags(effort);
    tags_and_calls(effort);
    arguments_of_a_call(effort);
    whole(effort);
    linear(effort);
    cases::table();
    ExitCode::SUCCESS
}

fn tags(effort: Effort) {
    let input = inputs::reply(MEGABYTE, Format::Tags, 0);
    let pieces = inputs::ragged(&input.text);
    let around_tags = inputs::around(&TAGS, &input.text, inputs::ragged);
    let mut entries = entries(Format::Tags, &input, &pieces);
    entries.push(entry_without_cut_markers(Format::Tags, &input, &around_tags));
    println!(
        "\n## Tags alone\n\n1 MB of prose, half of it reasoning, in pieces of 4 to 16 bytes.\n"
    );
    tables::pieces(&entries, &measure::all(&entries, effort));
}

fn tags_and_calls(effort: Effort) {
    println!("\n## Tags and calls\n\nThe same with 20 calls of about 400 bytes in the answer.\n");
    let inputs = [Format::Hermes, Format::Qwen3Coder]
        .map(|format| (format, inputs::reply(MEGABYTE, format, 20)));
    let cut = inputs.each_ref().map(|(format, input)| {
        let pieces = inputs::ragged(&input.text);
        (*format, input, pieces, inputs::around(&TAGS, &input.text, inputs::ragged))
    });
    let mut all = Vec::new();
    for (format, input, pieces, around_tags) in &cut {
        all.extend(entries(*format, input, pieces));
        all.push(entry_without_cut_markers(*format, input, around_tags));
    }
    tables::pieces(&all, &measure::all(&all, effort));
}

fn arguments_of_a_call(effort: Effort) {
    let mut slow = Vec::new();
    for (bytes, size) in [(MEGABYTE / 10, "100 KB"), (MEGABYTE, "1 MB")] {
        println!("\n## Arguments of one call, {size}\n\nIn pieces of 8 bytes.");
        if !slow.is_empty() {
            println!("Readers that did not finish 100 KB in time are left out.");
        }
        println!();
        let inputs = Format::WITH_CALLS.map(|format| (format, inputs::long_call(bytes, format)));
        let cut =
            inputs.each_ref().map(|(format, input)| (*format, input, inputs::eights(&input.text)));
        let kimi = inputs.iter().find(|(format, _)| *format == Format::KimiK2);
        let kimi = kimi.map_or("", |(_, input)| &input.text);
        let around_markers = inputs::around(&KIMI_K2, kimi, inputs::eights);
        let mut all = Vec::new();
        for (format, input, pieces) in &cut {
            all.extend(entries(*format, input, pieces));
            if *format == Format::KimiK2 {
                all.push(entry_without_cut_markers(*format, input, &around_markers));
            }
        }
        all.retain(|entry| !slow.contains(&(entry.subject, entry.format, entry.note)));
        let figures = measure::all(&all, effort);
        tables::pieces(&all, &figures);
        let stopped = all.iter().zip(&figures).filter(|(_, one)| !one.complete);
        slow.extend(stopped.map(|(entry, _)| (entry.subject, entry.format, entry.note)));
    }
}

/// All readers of a format, and the floor.
fn entries<'a>(format: Format, input: &'a Input, pieces: &'a [&'a str]) -> Vec<Entry<'a>> {
    let subjects = [Subject::Floor].into_iter().chain(Subject::READERS);
    subjects
        .filter(|subject| subject.reads(format))
        .map(|subject| Entry { subject, format, input, pieces, note: "" })
        .collect()
}

/// A reader on text without cut markers. If it misses a cut marker, it misreads the rest of the text
/// and does less work than the others.
fn entry_without_cut_markers<'a>(
    format: Format,
    input: &'a Input,
    pieces: &'a [&'a str],
) -> Entry<'a> {
    Entry { subject: Subject::Smg, format, input, pieces, note: ", no marker cut" }
}

fn whole(effort: Effort) {
    println!("\n## A whole buffer\n\nProse in one piece, without copying borrowed text.\n");
    let mut rows = Vec::new();
    for (bytes, size) in [(MEGABYTE, "1 MB"), (16 * MEGABYTE, "16 MB")] {
        let input = inputs::answer(bytes);
        let pieces = [input.text.as_str()];
        for format in [Format::Tags, Format::Hermes] {
            let floor = (format == Format::Tags).then_some(Subject::Floor);
            let subjects = floor.into_iter().chain(Subject::READERS);
            let subjects: Vec<Subject> = subjects.filter(|one| one.reads(format)).collect();
            let mut best = vec![Duration::MAX; subjects.len()];
            for _ in 0..effort.rounds {
                for (subject, best) in subjects.iter().zip(&mut best) {
                    let run = measure::run_without_output(*subject, format, &pieces, effort.cap);
                    *best = run.time.min(*best);
                }
            }
            for (subject, best) in subjects.into_iter().zip(best) {
                let found = measure::collected(subject, format, &pieces);
                let difference = input.truth.difference(&found);
                let speed = input.text.len() as f64 / best.as_secs_f64() / 1e9;
                rows.push((size, subject, format, speed, difference));
            }
        }
    }
    tables::speeds(&rows);
}

/// Our reader alone: the cost of a byte must not depend on the length of the text.
fn linear(effort: Effort) {
    const SIZES: [usize; 4] = [10_000, 100_000, MEGABYTE, 10 * MEGABYTE];
    // Only ratios matter here, and one disturbed cell spoils its row.
    let rounds = 3 * effort.rounds;
    println!(
        "\n## Linear\n\nOurs, in pieces of 8 bytes: nanoseconds per byte. Best of {rounds} rounds, \
         nothing kept.\n"
    );
    let mut rows = Vec::new();
    let mut row = |name: String, format: Format, make: &dyn Fn(usize) -> String| {
        let texts = SIZES.map(make);
        let pieces: Vec<Vec<&str>> = texts.iter().map(|text| inputs::eights(text)).collect();
        let mut best = [f64::INFINITY; SIZES.len()];
        for _ in 0..rounds {
            for ((text, pieces), best) in texts.iter().zip(&pieces).zip(&mut best) {
                // All sizes read the same number of bytes in a round.
                let times = SIZES[SIZES.len() - 1] / text.len().min(SIZES[SIZES.len() - 1]);
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    spent +=
                        measure::run_without_output(Subject::Ours, format, pieces, Duration::MAX)
                            .time;
                }
                let bytes = (times * text.len()) as f64;
                *best = best.min(spent.as_secs_f64() * 1e9 / bytes);
            }
        }
        rows.push((name, best));
    };
    row("reasoning".to_owned(), Format::Tags, &inputs::reasoning);
    for format in Format::WITH_CALLS {
        let name = format!("arguments, {}", tables::format_name(format));
        row(name, format, &|bytes| inputs::long_call(bytes, format).text);
    }
    tables::costs(["10 KB", "100 KB", "1 MB", "10 MB"], &rows);
}
