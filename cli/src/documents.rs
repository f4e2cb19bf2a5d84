//! The documents of a text: YAML between lines of `---`, or JSON values one after another.

use serde_json::Value;

/// Where a document stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLocation {
    /// The file name, as given on the command line or found in a folder.
    pub file: String,
    /// The number of the document in the file, from 1; what is empty or only comments does not count.
    pub document: usize,
    /// The line at which it begins, from 1.
    pub line: usize,
    /// The number of the object in a List, from 1; `None` outside one.
    pub item: Option<usize>,
}

impl std::fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (document {}, line {}", self.file, self.document, self.line)?;
        self.item.map_or(Ok(()), |item| write!(f, ", item {item}"))?;
        write!(f, ")")
    }
}

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is not valid YAML or JSON.
    #[error("{place}: not valid YAML or JSON")]
    Syntax {
        /// Where it stands.
        place: DocumentLocation,
        /// The parser's error; its lines are those of the file.
        source: Box<serde_saphyr::Error>,
    },
    /// It is a template of Helm or the like.
    #[error(
        "{place}: line {line} has {found:?}: this is a template; render it first, as in: helm template . | kubectl noderotation check -f -"
    )]
    Template {
        /// Where it stands.
        place: DocumentLocation,
        /// The line in the file.
        line: usize,
        /// What makes it a template.
        found: String,
    },
    /// A line of four dashes or more, which separates nothing.
    #[error("{file}: line {line} is {found:?}, which separates no documents; write ---")]
    Separator {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The line's text.
        found: String,
    },
}

/// One document, or why it cannot be read.
pub type Document = Result<(DocumentLocation, Value), DocumentError>;

/// The documents of a file's text.
pub fn split(file: &str, text: &str) -> Vec<Document> {
    // editors on Windows may begin a file with a byte order mark, which is no content
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let chunks = json_values(text).unwrap_or_else(|| yaml_chunks(text));
    let filled = chunks.into_iter().filter(|chunk| !is_blank(chunk.text));
    let mut documents: Vec<Document> = filled.enumerate().map(|(n, chunk)| parse(file, n + 1, &chunk)).collect();
    documents.extend(wrong_separators(file, text).map(Err));
    documents
}

/// A part of a text.
struct Chunk<'a> {
    text: &'a str,
    /// The line at which it begins, from 1.
    begins: usize,
    /// The line at which its content begins: behind comments.
    line: usize,
}

/// The values of a text that is JSON throughout, one or more; `None` where it is not.
fn json_values(text: &str) -> Option<Vec<Chunk<'_>>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    let (mut chunks, mut begin, mut line) = (Vec::new(), 0, 1);
    while let Some(value) = values.next() {
        value.ok()?;
        let chunk = text.get(begin..values.byte_offset())?;
        let content = chunk.trim_start();
        line += lines_in(chunk) - lines_in(content);
        chunks.push(Chunk { text: content, begins: line, line });
        line += lines_in(content);
        begin = values.byte_offset();
    }
    Some(chunks)
}

/// The parts between lines that begin with `---`.
fn yaml_chunks(text: &str) -> Vec<Chunk<'_>> {
    let (mut chunks, mut begin, mut at, mut begins) = (Vec::new(), 0, 0, 1);
    let mut add = |begin: usize, end: usize| {
        let chunk = text.get(begin..end).unwrap_or_default();
        chunks.push(Chunk { text: chunk, begins, line: begins + lines_before_content(chunk) });
        begins += lines_in(chunk);
    };
    for line in text.split_inclusive('\n') {
        let is_separator =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if is_separator {
            add(begin, at);
            // what follows on the same line belongs to the document
            begin = at + "---".len();
        }
        at += line.len();
    }
    add(begin, at);
    chunks
}

/// How many lines stand before the first that is neither empty nor a comment.
fn lines_before_content(text: &str) -> usize {
    let is_content = |line: &str| !line.trim_start().is_empty() && !line.trim_start().starts_with('#');
    text.lines().position(is_content).unwrap_or_default()
}

fn lines_in(text: &str) -> usize {
    text.matches('\n').count()
}

/// Nothing but comments, directives and ends of documents.
fn is_blank(text: &str) -> bool {
    let is_nothing = |line: &str| line.is_empty() || line.starts_with(['#', '%']) || line == "...";
    text.lines().map(str::trim).all(is_nothing)
}

fn parse(file: &str, document: usize, chunk: &Chunk<'_>) -> Document {
    let place = DocumentLocation { file: file.to_owned(), document, line: chunk.line, item: None };
    match serde_saphyr::from_str(chunk.text) {
        Ok(value) => Ok((place, value)),
        Err(source) => Err(unreadable(place, chunk, source)),
    }
}

/// Read once more behind as many empty lines as stand before it in the file, so that the parser names the file's lines.
fn unreadable(place: DocumentLocation, chunk: &Chunk<'_>, source: serde_saphyr::Error) -> DocumentError {
    let padded = "\n".repeat(chunk.begins - 1) + chunk.text;
    if let Some((line, found)) = template_line(&padded) {
        return DocumentError::Template { place, line, found };
    }
    let source = serde_saphyr::from_str::<Value>(&padded).err().unwrap_or(source);
    DocumentError::Syntax { place, source: Box::new(source) }
}

/// The first line that has an action of a template, from 1, and its text.
fn template_line(text: &str) -> Option<(usize, String)> {
    text.lines().enumerate().find(|(_, line)| line.contains("{{")).map(|(n, line)| (n + 1, line.trim().to_owned()))
}

fn wrong_separators<'a>(file: &'a str, text: &'a str) -> impl Iterator<Item = DocumentError> + use<'a> {
    let is_wrong = |line: &str| line.len() > 3 && line.bytes().all(|byte| byte == b'-');
    text.lines()
        .map(str::trim_end)
        .enumerate()
        .filter(move |(_, line)| is_wrong(line))
        .map(|(n, line)| DocumentError::Separator { file: file.to_owned(), line: n + 1, found: line.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `document@line` of what can be read, and the messages of what cannot.
    fn read(text: &str) -> Vec<String> {
        split("f", text)
            .into_iter()
            .map(|document| match document {
                Ok((place, value)) => format!("{}@{} {value}", place.document, place.line),
                Err(error) => error.to_string(),
            })
            .collect()
    }

    #[test]
    fn documents_are_counted_as_a_person_counts() {
        assert_eq!(read("a: 1\n"), ["1@1 {\"a\":1}"]);
        assert_eq!(read("---\na: 1\n---\nb: 2\n"), ["1@2 {\"a\":1}", "2@4 {\"b\":2}"]);
        assert_eq!(read("# a word\n\n---\n---\n# another\na: 1\n...\n---\n"), ["1@6 {\"a\":1}"]);
        assert_eq!(read("%YAML 1.2\n---\na: 1\n"), ["1@3 {\"a\":1}"]);
        assert_eq!(
            read("--- {a: 1}\n--- # nothing\nb: 2\r\n---\r\nc: 3\r\n"),
            ["1@1 {\"a\":1}", "2@3 {\"b\":2}", "3@5 {\"c\":3}"]
        );
        assert_eq!(read("a: |\n  ---\n  x\n"), ["1@1 {\"a\":\"---\\nx\\n\"}"], "indented text separates nothing");
        assert_eq!(read("\u{feff}# a word\n---\na: 1\n"), ["1@3 {\"a\":1}"], "behind a byte order mark");
        assert_eq!(read(""), [""; 0]);
    }

    #[test]
    fn json_values_may_follow_each_other() {
        let both = ["1@1 {\"a\":1}", "2@2 {\"b\":2}"];
        assert_eq!(read("{\"a\": 1}\n{\"b\": 2}\n"), both);
        assert_eq!(read("{\"a\":\n1}\n\n{\"b\": 2}"), ["1@1 {\"a\":1}", "2@4 {\"b\":2}"]);
        assert_eq!(read("{a: 1}"), ["1@1 {\"a\":1}"], "YAML in one line");
    }

    #[test]
    fn a_template_is_told_from_a_mistake() {
        let template = "# c\na: 1\nb: {{ .Values.x }}\n";
        let said = read(template);
        assert!(
            said.concat().starts_with("f (document 1, line 2): line 3 has \"b: {{ .Values.x }}\": this is a template"),
            "{said:?}"
        );
        assert_eq!(read("a: \"{{ $labels.x }}\"\n").len(), 1, "a text with braces is none");
        assert_eq!(read("a: [\n"), ["f (document 1, line 1): not valid YAML or JSON"]);
    }

    #[test]
    fn a_mistake_is_told_with_the_line_of_the_file() {
        let documents = split("f", "a: 1\n---\n# c\nb: [\n");
        let said: Vec<String> = documents
            .iter()
            .filter_map(|document| match document {
                Err(DocumentError::Syntax { place, source }) => Some(format!("{place} {source}")),
                _ => None,
            })
            .collect();
        assert!(said.concat().starts_with("f (document 2, line 4) error: line 4 column 4"), "{said:?}");
    }

    #[test]
    fn four_dashes_separate_nothing() {
        let said = read("a: 1\n----\nb: 2\n");
        assert!(
            said.iter().any(|text| text == "f: line 2 is \"----\", which separates no documents; write ---"),
            "{said:?}"
        );
    }

    /// Of a key that stands twice the API server takes one; which, is chance to whoever reads the file.
    #[test]
    fn a_key_that_stands_twice_is_refused() {
        for text in ["a: 1\na: 2\n", "{\"a\": 1, \"a\": 2}"] {
            let said = match split("f", text).remove(0) {
                Err(DocumentError::Syntax { source, .. }) => source.to_string(),
                other => format!("{other:?}"),
            };
            assert!(said.contains("duplicate"), "{said}");
        }
    }
}
