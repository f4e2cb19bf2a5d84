//! Why a part of a process ended.

use std::io;
use std::net::SocketAddr;

/// Why one of the tasks that every program of ours runs cannot go on. The message leaves out the source; whoever shows it
/// shows the chain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of an HTTP endpoint is in use, or is not an address of this machine.
    #[error("{flag} {address} cannot be bound; choose another address or stop the program that listens there")]
    Bind {
        /// The command-line flag that names the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The server of the health endpoints failed after it had started.
    #[error("the server of the health endpoints failed")]
    Serve(#[source] io::Error),
    /// The handler of SIGTERM or SIGINT cannot be installed.
    #[error("signals cannot be received")]
    Signal(#[source] io::Error),
    /// SIGTERM or SIGINT came twice: whoever sent it does not want to wait.
    #[error("received a second signal, so the process exits without waiting for requests in flight")]
    SecondSignal,
}
