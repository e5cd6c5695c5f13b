//! A TCP proxy that spoils the way to a server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What becomes of what passes, on connections that there are and on those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All of it passes.
    IsOpen,
    /// Answers are late by so much.
    IsSlow(Duration),
    /// What is asked passes; its answer is lost, and the connection with it.
    LosesAnswers,
    /// Of each connection, one answer more passes; then as [`Way::LosesAnswers`].
    LosesSecondAnswers,
    /// What is asked passes; answers wait until the way is another one.
    HoldsAnswersBack,
    /// Connections are accepted, and that is all: nothing passes until the way is another one.
    IsSilent,
    /// Connections are accepted and closed.
    IsClosed,
}

/// A port that leads to a server. It is closed, and its connections are cut, with this value.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Sender<State>,
    counts: Arc<Counts>,
    listener: JoinHandle<()>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    way: Way,
    server: SocketAddr,
    /// How often connections were cut: those that were accepted before the last time have ended.
    cuts: u32,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicU32,
    lost: AtomicU32,
}

impl Proxy {
    /// A proxy before that server, open.
    ///
    /// # Panics
    /// If there is no port left.
    pub async fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (state, watched) = watch::channel(State { way: Way::IsOpen, server, cuts: 0 });
        let counts = Arc::<Counts>::default();
        let listener = tokio::spawn(accept(listener, watched, Arc::clone(&counts)));
        Proxy { address, state, counts, listener }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on things pass so.
    pub fn set(&self, way: Way) {
        self.state.send_modify(|state| state.way = way);
    }

    /// From now on new connections lead to that server; those that there are stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        self.state.send_modify(|state| state.server = server);
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> u32 {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// How many answers were lost.
    pub fn lost(&self) -> u32 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn accept(listener: TcpListener, state: Receiver<State>, counts: Arc<Counts>) {
    while let Ok((client, _)) = listener.accept().await {
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        let (state, counts) = (state.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            let cuts = state.borrow().cuts;
            let mut watched = state.clone();
            tokio::select! {
                // An error on one side ends the other.
                _ = connect(client, state, counts) => {}
                // Or the proxy is gone.
                _ = watched.wait_for(|state| state.cuts > cuts) => {}
            }
        });
    }
}

async fn connect(client: TcpStream, mut state: Receiver<State>, counts: Arc<Counts>) -> io::Result<()> {
    let way = let_pass(&mut state, |way| way != Way::IsSilent).await?;
    if way == Way::IsClosed {
        return Ok(());
    }
    let address = state.borrow().server;
    let server = TcpStream::connect(address).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let asked = copy(from_client, to_server, state.clone(), None);
    let answered = copy(from_server, to_client, state, Some(&counts.lost));
    tokio::select! {
        ended = asked => ended,
        ended = answered => ended,
    }
}

/// Passes on what comes: what is asked, or the answers, of which it counts those that are lost.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: Receiver<State>,
    lost: Option<&AtomicU32>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut has_passed_one = false;
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let holds_back = |way| way == Way::IsSilent || (lost.is_some() && way == Way::HoldsAnswersBack);
        match (let_pass(&mut state, |way| !holds_back(way)).await?, lost) {
            (Way::LosesSecondAnswers, Some(_)) if !has_passed_one => has_passed_one = true,
            (Way::LosesAnswers | Way::LosesSecondAnswers, Some(lost)) => {
                lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            (Way::IsClosed, _) => return Ok(()),
            (Way::IsSlow(delay), Some(_)) => sleep(delay).await,
            _ => {}
        }
        to.write_all(&buffer[..read]).await?;
    }
}

async fn let_pass(state: &mut Receiver<State>, passes: impl Fn(Way) -> bool) -> io::Result<Way> {
    let state = state.wait_for(|state| passes(state.way)).await;
    state.map(|state| state.way).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}
