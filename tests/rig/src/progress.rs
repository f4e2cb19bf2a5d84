//! Shows that a long `go build -v` makes progress: the first build of a Kubernetes takes minutes.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// How often progress is shown on a terminal, where one line is rewritten.
const TERMINAL_INTERVAL: Duration = Duration::from_secs(1);

/// How often progress is shown elsewhere, as in the log of a CI job, where every line stays.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// What a running build has done so far.
struct Progress<'a> {
    program: &'a str,
    started: Instant,
    shown: Instant,
    downloaded: usize,
    compiled: usize,
}

impl Progress<'_> {
    fn show(&mut self) {
        let is_terminal = std::io::stderr().is_terminal();
        let interval = if is_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        if self.shown.elapsed() < interval {
            return;
        }
        self.shown = Instant::now();
        let Self { program, downloaded, compiled, .. } = self;
        let text = format!(
            "rig:   {program}: {} s, {downloaded} modules downloaded, {compiled} packages compiled",
            self.started.elapsed().as_secs()
        );
        if is_terminal {
            eprint!("\r\x1b[2K{text}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{text}");
        }
    }

    fn clear(&self) {
        if std::io::stderr().is_terminal() && self.shown > self.started {
            eprint!("\r\x1b[2K");
        }
    }
}

/// Runs `go build -v` for a program. The error shows the last messages of the compiler.
pub fn run(mut go: Command, program: &str) -> anyhow::Result<()> {
    let mut child = go
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("building {program}: {} cannot be run", go.get_program().display()))?;
    let output = child.stderr.take().context("no standard error")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let now = Instant::now();
    let mut progress = Progress { program, started: now, shown: now, downloaded: 0, compiled: 0 };
    let mut messages = Vec::new();
    loop {
        match lines.recv_timeout(TERMINAL_INTERVAL) {
            Ok(line) if line.starts_with("go: downloading ") => progress.downloaded += 1,
            // -v prints the path of each package, which has no spaces; messages have some
            Ok(line) if line.contains(' ') => messages.push(line),
            Ok(_) => progress.compiled += 1,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress.show();
    }
    let status = child.wait()?;
    progress.clear();
    if !status.success() {
        let tail = messages.get(messages.len().saturating_sub(15)..).unwrap_or_default();
        bail!("building {program} failed:\n{}", tail.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_shows_messages_and_no_package_names() {
        let mut go = Command::new("sh");
        go.args(["-c", "echo example.com/a >&2; echo 'a.go:1:1: undefined: x' >&2; exit 1"]);
        let error = run(go, "a").unwrap_err().to_string();
        assert_eq!(error, "building a failed:\na.go:1:1: undefined: x");
    }
}
