//! Sealing and opening: one large field, and the small fields of a page.

use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use throughline_sealing::{ChatKey, FieldPath};

const LARGE: usize = 1 << 20;
/// A page of a hundred nodes, each with its text, blocks, thinking and signature.
const NODES: usize = 100;
const FIELDS: [(&str, usize); 4] = [
    ("content", 600),
    ("content_blocks", 900),
    ("thinking_content", 1200),
    ("thinking_signature", 400),
];
const PATH: FieldPath<'_> =
    FieldPath { chat: "chat-1", node: "018f3c2a-7b1e-7c10-9f61-2f6d5e0c4a11", field: "raw" };

fn main() {
    divan::main();
}

fn key() -> ChatKey {
    ChatKey::new([7; 32])
}

#[divan::bench]
fn seal_1_mb(bencher: Bencher<'_, '_>) {
    let (key, bytes) = (key(), vec![b'x'; LARGE]);
    bencher
        .counter(BytesCount::new(LARGE))
        .bench(|| key.seal(black_box(PATH), &[9; 12], black_box(&bytes)));
}

#[divan::bench]
fn open_1_mb(bencher: Bencher<'_, '_>) {
    let key = key();
    let envelope = key.seal(PATH, &[9; 12], &vec![b'x'; LARGE]);
    bencher
        .counter(BytesCount::new(LARGE))
        .bench(|| key.open(black_box(PATH), black_box(&envelope)));
}

/// The limit that memory sets: both directions copy the bytes once.
#[divan::bench]
fn copy_1_mb(bencher: Bencher<'_, '_>) {
    let bytes = vec![b'x'; LARGE];
    bencher.counter(BytesCount::new(LARGE)).bench(|| black_box(&bytes).clone());
}

#[divan::bench]
fn open_a_page(bencher: Bencher<'_, '_>) {
    let key = key();
    let page: Vec<(String, &str, Vec<u8>)> = (0..NODES)
        .flat_map(|node| FIELDS.map(|(field, size)| (format!("node-{node}"), field, size)))
        .map(|(node, field, size)| {
            let path = FieldPath { chat: "chat-1", node: &node, field };
            let envelope = key.seal(path, &[9; 12], &vec![b'x'; size]);
            (node, field, envelope)
        })
        .collect();
    bencher.counter(ItemsCount::new(page.len())).bench(|| {
        page.iter().fold(0, |total, (node, field, envelope)| {
            let path = FieldPath { chat: "chat-1", node, field };
            total + key.open(path, black_box(envelope)).map_or(0, |bytes| bytes.len())
        })
    });
}
