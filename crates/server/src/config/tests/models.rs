//! The models file.

use std::path::PathBuf;

use super::*;

/// A folder with a models file, which is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, models: &str) -> Self {
        let folder = format!("throughline-models-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("models.toml"), models).unwrap();
        Self(path)
    }

    /// Reads a configuration in this folder.
    fn read(&self, text: &str, extra: &[(&str, &str)]) -> Result<Config, Diagnostics> {
        let source = Source {
            name: self.0.join("throughline.toml").display().to_string(),
            text: text.to_owned(),
        };
        read(Some(&source), environment(extra), Overrides::default())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn models_file_is_relative_to_the_configuration() {
    let models = "[[model]]\npattern = 'house'\nmax_output = 7\n";
    let folder = Folder::new("beside", models);
    let path = folder.0.join("models.toml").display().to_string();
    let expected = Some(Source { name: path.clone(), text: models.to_owned() });
    for (text, variables) in [
        ("models_file = 'models.toml'", &[][..]),
        ("", &[("THROUGHLINE_MODELS_FILE", path.as_str())]),
    ] {
        let config = folder.read(text, variables).unwrap();
        assert_eq!(config.models, expected, "{text}");
    }
}

#[test]
fn mistakes_of_both_files_have_their_location() {
    let models = "[[model]]\npattern = 'a'\nthinking = 'much'\n[[model]]\nefort = 1\n";
    let folder = Folder::new("mistakes", models);
    let text = "models_file = 'models.toml'\nkeep_alive = 15\n";
    let output = folder.read(text, &[]).unwrap_err().to_string();
    for words in [
        "models.toml:3:12: `thinking`: unknown variant `much`, expected one of `budget`",
        "    3 | thinking = 'much'",
        "models.toml:4:1: `pattern` is missing",
        "models.toml:5:1: unknown key `efort` of a model",
        "throughline.toml:2:14: `keep_alive` is `15`, without a unit",
        "4 mistakes in ",
    ] {
        assert!(output.contains(words), "{words}\nin\n{output}");
    }
}

#[test]
fn missing_models_file_is_a_mistake_of_its_key() {
    each_has_one_mistake(&[
        (
            "models_file = '/nowhere/models.toml'",
            "throughline.toml:1:15: no such models file: `/nowhere/models.toml`",
        ),
        ("models_file = '~ada/x'", "`models_file` is `~ada/x`"),
        ("models_file = 7", "`models_file`"),
        ("models_file = '/'", "cannot read the models file `/`"),
    ]);
}
