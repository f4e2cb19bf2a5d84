//! Which files `-f` means, and their text: files, folders as kubectl reads them, and standard input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Standard input cannot be read, or is not UTF-8.
    #[error("standard input cannot be read")]
    Stdin(#[source] io::Error),
    /// The file or folder does not exist, cannot be read, or is not UTF-8.
    #[error("{file} cannot be read")]
    Unreadable {
        /// Its name, as given or found.
        file: String,
        /// The reason.
        source: io::Error,
    },
    /// A folder without files of these kinds.
    #[error("{0} has no file that ends in .yaml, .yml or .json; -R also looks into the folders below")]
    NothingInside(String),
}

/// The endings of the files that are read in a folder.
const ENDINGS: [&str; 4] = ["yaml", "yml", "json", "jsonl"];

/// The files that these arguments mean, in their order; those of a folder by name. With `recursive` also those below it.
pub fn expand(arguments: &[String], recursive: bool) -> Result<Vec<String>, FileError> {
    let mut files = Vec::new();
    for argument in arguments {
        if argument == "-" || !Path::new(argument).is_dir() {
            files.push(argument.clone());
            continue;
        }
        let before = files.len();
        add_folder(Path::new(argument), recursive, &mut files)?;
        if files.len() == before {
            return Err(FileError::NothingInside(argument.clone()));
        }
    }
    Ok(files)
}

fn add_folder(folder: &Path, recursive: bool, files: &mut Vec<String>) -> Result<(), FileError> {
    let unreadable = |source| FileError::Unreadable { file: folder.display().to_string(), source };
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(unreadable)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if recursive {
                add_folder(&path, recursive, files)?;
            }
        } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
            files.push(path.display().to_string());
        }
    }
    Ok(())
}

/// The text of a file; `-` is standard input.
pub fn text(file: &str) -> Result<String, FileError> {
    if file == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(FileError::Stdin)?;
        return Ok(text);
    }
    std::fs::read_to_string(file).map_err(|source| FileError::Unreadable { file: file.to_owned(), source })
}

/// Whether a file is one of those that lie beside manifests and are none: what it holds has no `kind`.
pub fn lies_beside_manifests(file: &str) -> bool {
    let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or_default().to_ascii_lowercase();
    let stem = name.split('.').next().unwrap_or_default();
    ["kustomization", "chart"].contains(&stem) || stem.contains("values")
}
