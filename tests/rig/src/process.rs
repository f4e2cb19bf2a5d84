//! Child processes, which are started and ended by their id, and do not outlive the run for long.
//!
//! Each is noted in the run's folder with its id and its start time, so that the next run can end what a killed one
//! left behind without ever touching a stranger that got the same id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A child process. Dropping it kills it.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    note: PathBuf,
}

impl Process {
    /// Starts a command; its output is appended to `<run>/log/<name>.log`.
    pub fn start(run: &Path, name: &str, mut command: Command) -> anyhow::Result<Self> {
        let log = run.join("log").join(format!("{name}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("{} cannot be written", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command
            .spawn()
            .with_context(|| format!("{name} cannot be started: {}", command.get_program().display()))?;
        let note = run.join("pid").join(name);
        write_note(&note, child.id())?;
        Ok(Self { name: name.to_owned(), child, log, note })
    }

    /// The name that it was started by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The path of its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Checks that it still runs; otherwise the error shows its exit status and the last lines of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}; its log ends:\n{}", self.name, self.tail(20)),
        }
    }

    /// The last `lines` lines of its log; empty where it has none.
    pub fn tail(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
    }

    /// Sends a signal by name (`TERM`, `KILL`, `STOP`, `CONT`).
    pub fn signal(&self, signal: &str) -> anyhow::Result<()> {
        send(self.id(), signal)
    }

    /// Waits until it has exited; its exit code, or `None` where a signal ended it. An error after `patience`.
    pub fn wait(&mut self, patience: Duration) -> anyhow::Result<Option<i32>> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                let _ = std::fs::remove_file(&self.note);
                return Ok(status.code());
            }
            if Instant::now() > until {
                bail!("{} still runs after {patience:?}; its log ends:\n{}", self.name, self.tail(10));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends SIGKILL and waits until it has exited.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.note);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn send(id: u32, signal: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").arg(format!("-{signal}")).arg(id.to_string()).stderr(Stdio::null()).status()?;
    if !status.success() {
        bail!("process {id} could not be sent SIG{signal}");
    }
    Ok(())
}

/// Notes a process at `path`. Another run that looks meanwhile finds no note or a whole one: half a note would look like
/// that of a dead process, and its owner's folder would be removed.
fn write_note(path: &Path, id: u32) -> anyhow::Result<()> {
    let unfinished = path.with_added_extension("unfinished");
    std::fs::write(&unfinished, format!("{id} {}", start_time(id).unwrap_or_default()))?;
    Ok(std::fs::rename(unfinished, path)?)
}

/// When a process started, in clock ticks since boot; `None` where there is none. Together with the id this is unique.
fn start_time(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // the command's name stands in parentheses and may hold anything
    stat.rsplit_once(") ")?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The folder of a run: logs, process ids, certificates, kubeconfigs. Dropping it removes the folder, unless
/// `NODEROTATION_RIG_KEEP_LOGS` is set.
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Creates a new folder under `root`, after ending the processes of runs whose owner was killed.
    pub fn make(root: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(root)?;
        end_leftovers(root);
        for n in 0..1_000 {
            let path = root.join(format!("{}-{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    for folder in ["log", "pid", "pki", "kubeconfig"] {
                        std::fs::create_dir(path.join(folder))?;
                    }
                    write_note(&path.join("owner"), std::process::id())?;
                    return Ok(Self(path));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("{} cannot be created", path.display())),
            }
        }
        bail!("{} holds 1,000 runs of this process already; remove old ones", root.display())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the folder on disk when the run ends.
    pub fn keep(self) -> PathBuf {
        let path = self.0.clone();
        std::mem::forget(self);
        path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if std::env::var_os("NODEROTATION_RIG_KEEP_LOGS").is_none() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Ends the processes of runs whose owner is dead, and removes their folders.
fn end_leftovers(root: &Path) {
    for run in std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Ok(owner) = std::fs::read_to_string(run.join("owner")) else { continue };
        if is_alive(&owner) {
            continue;
        }
        let mut ended = 0;
        for note in std::fs::read_dir(run.join("pid")).into_iter().flatten().flatten() {
            let note = std::fs::read_to_string(note.path()).unwrap_or_default();
            if let Some(id) = is_alive(&note).then(|| note.split(' ').next()?.parse().ok()).flatten() {
                let _ = send(id, "KILL");
                ended += 1;
            }
        }
        if ended > 0 {
            eprintln!("rig: ended {ended} processes that run {} left behind", run.display());
        }
        if std::env::var_os("NODEROTATION_RIG_KEEP_LOGS").is_none() {
            let _ = std::fs::remove_dir_all(&run);
        }
    }
}

/// Whether the process of a note `<id> <start time>` still runs.
fn is_alive(note: &str) -> bool {
    let mut parts = note.trim().split(' ');
    let (Some(id), Some(start)) =
        (parts.next().and_then(|n| n.parse().ok()), parts.next().and_then(|n| n.parse::<u64>().ok()))
    else {
        return false;
    };
    start_time(id) == Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(run: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("1000");
        Process::start(run, "sleeper", command).unwrap()
    }

    #[test]
    fn a_process_ends_with_its_owner_and_is_told_from_a_stranger() {
        let root = std::env::temp_dir().join(format!("rig-process-{}", std::process::id()));
        let run = RunFolder::make(&root).unwrap();
        let mut process = sleeper(run.path());
        let note = std::fs::read_to_string(run.path().join("pid/sleeper")).unwrap();
        assert!(is_alive(&note));
        let stranger = format!("{} 1", process.id());
        assert!(!is_alive(&stranger), "the same id with another start is another process");
        assert!(process.check().is_ok());
        drop(process);
        assert!(!is_alive(&note));
        drop(run);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_a_dead_owner_left_is_ended_and_what_a_living_one_runs_is_not() {
        let root = std::env::temp_dir().join(format!("rig-leftovers-{}", std::process::id()));
        let (dead, living) = (RunFolder::make(&root).unwrap(), RunFolder::make(&root).unwrap());
        let mut left = sleeper(dead.path());
        let mut kept = sleeper(living.path());
        std::fs::write(dead.path().join("owner"), "4194304 1").unwrap();
        end_leftovers(&root);
        assert_eq!(left.wait(Duration::from_secs(30)).unwrap(), None, "ended by a signal");
        assert!(kept.check().is_ok());
        drop((left, kept, dead, living));
        std::fs::remove_dir_all(root).unwrap();
    }

    /// Several tests of one process boot at once; each looks for what dead runs left behind.
    #[test]
    fn runs_that_begin_together_remove_no_folder_of_each_other() {
        let root = std::env::temp_dir().join(format!("rig-together-{}", std::process::id()));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let run = RunFolder::make(&root).unwrap();
                        std::fs::write(run.path().join("pki/ca.crt"), "").unwrap();
                    }
                });
            }
        });
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_process_that_ended_shows_its_last_lines() {
        let root = std::env::temp_dir().join(format!("rig-tail-{}", std::process::id()));
        let run = RunFolder::make(&root).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo first; echo the reason >&2; exit 3"]);
        let mut process = Process::start(run.path(), "failing", command).unwrap();
        assert_eq!(process.wait(Duration::from_secs(30)).unwrap(), Some(3));
        let error = process.check().unwrap_err().to_string();
        assert!(error.contains("failing ended with exit status: 3") && error.contains("the reason"), "{error}");
        drop((process, run));
        std::fs::remove_dir_all(root).unwrap();
    }
}
