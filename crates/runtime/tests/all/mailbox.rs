//! Messages between threads and a runtime.

use crate::common::on_both;
use plexum_runtime::mailbox::{NoAnswer, Reply, SendError, mailbox, reply};
use plexum_runtime::yield_now;

#[test]
fn messages_of_several_threads_arrive_each_in_order_and_are_answered() {
    on_both(async |_| {
        let (sender, mut inbox) = mailbox::<(usize, u32, Reply<u32>)>(4);
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    for number in 0..200 {
                        let (question, answer) = reply();
                        let mut letter = (thread, number, question);
                        while let Err(SendError::Full(back)) = sender.send(letter) {
                            letter = back;
                            std::thread::yield_now();
                        }
                        assert_eq!(answer.wait(), Ok(number + 1));
                    }
                })
            })
            .collect();
        drop(sender);
        let mut next = [0; 4];
        while let Some((thread, number, question)) = inbox.receive().await {
            assert_eq!(number, next[thread]);
            next[thread] += 1;
            question.send(number + 1);
        }
        assert_eq!(next, [200; 4]);
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn a_sleeping_runtime_is_woken_by_a_message() {
    on_both(async |handle| {
        let (sender, mut inbox) = mailbox(1);
        let (asleep, is_asleep) = reply();
        let thread = std::thread::spawn(move || {
            is_asleep.wait().unwrap();
            sender.send(7).unwrap();
        });
        let receiver = handle.spawn(async move { inbox.receive().await });
        yield_now().await; // the receiver has looked once and waits
        asleep.send(());
        assert_eq!(receiver.await, Ok(Some(7)));
        thread.join().unwrap();
    });
}

#[test]
fn a_full_mailbox_gives_the_message_back_and_a_closed_one_too() {
    on_both(async |_| {
        let (sender, mut inbox) = mailbox(2);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!(sender.send(3), Err(SendError::Full(3)));
        assert_eq!(inbox.receive().await, Some(1));
        sender.send(3).unwrap();
        drop(inbox);
        assert_eq!(sender.send(4), Err(SendError::Closed(4)));
    });
}

#[test]
fn a_dropped_question_is_no_answer_for_futures_and_for_threads() {
    on_both(async |handle| {
        let (question, answer) = reply::<u8>();
        let waiter = handle.spawn(answer);
        yield_now().await;
        drop(question);
        assert_eq!(waiter.await, Ok(Err(NoAnswer)));

        let (sender, inbox) = mailbox(1);
        let (question, answer) = reply::<u8>();
        sender
            .send(question)
            .unwrap_or_else(|_| panic!("the mailbox is empty"));
        let thread = std::thread::spawn(move || answer.wait());
        drop(inbox);
        assert_eq!(thread.join().unwrap(), Err(NoAnswer));
    });
}

#[test]
fn a_mailbox_without_senders_ends_after_its_last_message() {
    on_both(async |handle| {
        let (sender, mut inbox) = mailbox(3);
        sender.send(1).unwrap();
        let second = sender.clone();
        drop(sender);
        second.send(2).unwrap();
        let receiver = handle.spawn(async move {
            let mut all = Vec::new();
            while let Some(message) = inbox.receive().await {
                all.push(message);
            }
            all
        });
        yield_now().await;
        drop(second);
        assert_eq!(receiver.await, Ok(vec![1, 2]));
    });
}
