//! Bad networks.

use super::*;

fn numbers(app: &App) -> Vec<u64> {
    app.messages.iter().map(|(_, bytes)| u64::from_le_bytes(bytes[..8].try_into().unwrap())).collect()
}

fn traffic(seed: u64, attribute: Attribute, count: u64, loss_pct: u64) -> Net {
    let mut net = Net::pair(seed);
    (net.loss_pct, net.repeat_pct, net.jitter_ns) = (loss_pct, 5, 400_000);
    let (client, _) = net.join(attribute);
    for number in 0..count {
        let mut payload = vec![number as u8; 8 + (net.random(900)) as usize];
        payload[..8].copy_from_slice(&number.to_le_bytes());
        net.send(0, client, &payload, number);
    }
    net.run_until(600 * SECOND, "all complete", |net| net.apps[0].statuses().len() as u64 == count);
    net.run(SECOND);
    net
}

#[test]
fn everything_arrives_once_and_in_order() {
    for seed in 0..30 {
        let net = traffic(seed, Attribute::ReliableOrdered, 600, seed % 4 * 10);
        assert_eq!(numbers(&net.apps[1]), (0..600).collect::<Vec<_>>(), "seed {seed}");
        let want: Vec<_> = (0..600).map(|number| (number, Status::Success)).collect();
        assert_eq!(net.apps[0].statuses(), want, "seed {seed}");
        net.assert_clean();
    }
}

#[test]
fn everything_arrives_once_and_past_gaps() {
    let mut overtaken = false;
    for seed in 0..30 {
        let net = traffic(seed, Attribute::ReliableUnordered, 600, seed % 4 * 10);
        let mut got = numbers(&net.apps[1]);
        overtaken |= !got.is_sorted();
        got.sort_unstable();
        assert_eq!(got, (0..600).collect::<Vec<_>>(), "seed {seed}");
        assert!(net.apps[0].statuses().iter().all(|(_, status)| *status == Status::Success));
        net.assert_clean();
    }
    assert!(overtaken, "unordered means unordered");
}

#[test]
fn unreliable_arrives_at_most_once() {
    for seed in 0..20 {
        let net = traffic(seed, Attribute::Unreliable, 600, 20);
        let mut got = numbers(&net.apps[1]);
        let count = got.len();
        got.sort_unstable();
        got.dedup();
        assert_eq!(got.len(), count, "seed {seed}");
        assert!(count > 300, "seed {seed}: {count}");
        net.assert_clean();
    }
}

#[test]
fn a_long_path_is_filled() {
    let mut net = Net::pair(1);
    net.delay_ns = 25 * MS;
    let (client, _) = net.join(Attribute::ReliableOrdered);
    let start = net.now;
    for number in 0..5_000u64 {
        net.send(0, client, &[1; 1400], number);
    }
    net.run_until(60 * SECOND, "done", |net| net.apps[0].statuses().len() == 5_000);
    let seconds = net.now.since(start) as f64 / 1e9;
    assert!(seconds < 3.0, "7 MB over 50 ms took {seconds} s");
    assert_eq!(net.ends[0].counters().retransmissions, 0);
}

#[test]
fn loss_costs_little_more_than_what_is_lost() {
    let mut net = Net::pair(3);
    net.loss_pct = 5;
    let (client, _) = net.join(Attribute::ReliableOrdered);
    for number in 0..5_000u64 {
        net.send(0, client, &[1; 1400], number);
    }
    net.run_until(60 * SECOND, "done", |net| net.apps[0].statuses().len() == 5_000);
    let resent = net.ends[0].counters().retransmissions;
    assert!((200..400).contains(&resent), "{resent} sent again of 5000 at 5 %");
}
