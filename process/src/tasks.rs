//! The supervision of a process: tasks that should run until it stops, and the signals that stop it.

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::Error;

/// The error of a task, of whatever type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The tasks of a process. Each should run until the process stops, so the end of any of them ends the process. Dropping
/// this aborts them all.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<Result<(), BoxError>>);

impl Tasks {
    /// No task yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a task on the current runtime.
    pub fn spawn<E: Into<BoxError>>(&mut self, task: impl Future<Output = Result<(), E>> + Send + 'static) {
        self.0.spawn(async move { task.await.map_err(Into::into) });
    }

    /// Waits for the first task that ends; `None` where there is none. [`describe`] turns the result into a sentence.
    pub async fn join_next(&mut self) -> Option<Result<Result<(), BoxError>, JoinError>> {
        self.0.join_next().await
    }
}

/// Awaits `future`. `None` where `stop` is cancelled first; an error where a task ends first.
pub async fn or_stopped<T>(
    future: impl Future<Output = T>,
    stop: &CancellationToken,
    tasks: &mut Tasks,
) -> anyhow::Result<Option<T>> {
    tokio::select! {
        value = future => Ok(Some(value)),
        () = stop.cancelled() => Ok(None),
        ended = tasks.join_next() => Err(anyhow::Error::msg(describe(ended))),
    }
}

/// Says in a sentence why a task ended, with all causes of its error.
pub fn describe<E: Into<BoxError>>(ended: Option<Result<Result<(), E>, JoinError>>) -> String {
    match ended {
        None => "no task was running".into(),
        Some(Ok(Ok(()))) => "a task returned although it should run until the process stops".into(),
        Some(Ok(Err(error))) => format!("{:#}", anyhow::Error::from_boxed(error.into())),
        Some(Err(error)) => format!("a task panicked: {error}"),
    }
}

/// Waits for SIGTERM or SIGINT and cancels `stop`. Returns only at the next signal, with [`Error::SecondSignal`].
pub async fn wait_for_signal(stop: CancellationToken) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    stop.cancel();
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    Err(Error::SecondSignal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_task_is_described_with_its_causes() {
        let mut tasks = Tasks::new();
        assert_eq!(describe(tasks.join_next().await), "no task was running");
        tasks.spawn(async { Err(Error::Serve(std::io::Error::other("disk on fire"))) });
        assert_eq!(describe(tasks.join_next().await), "the server of the health endpoints failed: disk on fire");
        tasks.spawn(async { Err("a sentence".to_owned()) });
        assert_eq!(describe(tasks.join_next().await), "a sentence");
    }
}
