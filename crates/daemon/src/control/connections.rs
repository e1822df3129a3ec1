//! Connections of the control thread, whatever they come through.
//!
//! Invariants:
//! - whoever connects has so long for the head of a request, again before each further one: a place among connections,
//!   or a descriptor that a volume may need, is nobody's who says nothing;
//! - what is wrong with a connection is nobody else's business.

use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Extension};
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;

/// How long the head of a request may take, and a connection wait for its next one.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Serves everybody who comes to a listener, each in a task of its own, and never returns. Handlers find the address of
/// who asks as `ConnectInfo`.
pub(super) async fn serve<L>(mut listener: L, app: Router)
where
    L: Listener,
    L::Addr: Clone + Sync,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT);
    loop {
        let (stream, from) = listener.accept().await;
        let app = app.clone().layer(Extension(ConnectInfo(from)));
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
        let _task = tokio::spawn(async move {
            let _ = connection.await; // who has gone is told nothing
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    /// Who comes is told by a test.
    struct Coming(mpsc::Receiver<DuplexStream>);

    impl Listener for Coming {
        type Io = DuplexStream;
        type Addr = &'static str;

        async fn accept(&mut self) -> (DuplexStream, &'static str) {
            match self.0.recv().await {
                Some(stream) => (stream, "ute"),
                None => std::future::pending().await,
            }
        }

        fn local_addr(&self) -> io::Result<&'static str> {
            Ok("here")
        }
    }

    /// In virtual time: a server whose answer takes a minute, and one client.
    fn with_client<F: Future>(test: impl FnOnce(DuplexStream) -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build();
        runtime.unwrap().block_on(async {
            let show = async |ConnectInfo(who): ConnectInfo<&'static str>| {
                tokio::time::sleep(Duration::from_secs(60)).await;
                who
            };
            let (sender, coming) = mpsc::channel(1);
            let _task = tokio::spawn(serve(Coming(coming), Router::new().route("/", get(show))));
            let (client, server) = duplex(4096);
            sender.send(server).await.unwrap();
            test(client).await
        })
    }

    #[test]
    fn who_never_ends_the_head_of_a_request_is_let_go() {
        with_client(async |mut client| {
            let began = Instant::now();
            let mut answer = Vec::new();
            client.write_all(b"GET / HT").await.unwrap();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(began.elapsed().as_secs(), HEAD_LIMIT.as_secs());
        });
    }

    #[test]
    fn an_answer_may_take_longer_and_the_handler_knows_who_asks() {
        with_client(async |mut client| {
            let mut answer = String::new();
            let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            client.write_all(request).await.unwrap();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(answer.ends_with("ute"), "{answer}");
        });
    }
}
