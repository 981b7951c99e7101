//! What the network does.

/// What each end may send, in Mbit/s: little enough that the guest's one processor is not what limits anybody.
pub const RATE_MBIT_PER_S: u32 = 10;
/// Packets that wait at most, those under way included.
const LIMIT_PACKETS: u32 = 100;

/// What happens to packets, in both directions.
#[derive(Copy, Clone, Debug)]
pub struct Weather {
    /// One way.
    pub delay_ms: u32,
    /// Of the packets, so many go at once instead of after the delay.
    pub reorder_pct: u32,
    /// Of 1,000 packets.
    pub loss_permille: u32,
}

impl Weather {
    /// The whole table.
    pub fn all() -> Vec<Weather> {
        let mut all = Vec::new();
        for delay_ms in [1, 10] {
            let losses = [0, 1, 10, 20, 50, 100];
            all.extend(losses.map(|loss_permille| Weather { delay_ms, reorder_pct: 0, loss_permille }));
        }
        all.extend([0, 10].map(|loss_permille| Weather { delay_ms: 10, reorder_pct: 5, loss_permille }));
        all
    }

    /// What there is time for with every change.
    pub fn few() -> Vec<Weather> {
        let weather = |reorder_pct, loss_permille| Weather { delay_ms: 1, reorder_pct, loss_permille };
        vec![weather(0, 0), weather(5, 20)]
    }

    /// Delay in ms, reordered in percent, lost in a thousandth, with commas.
    pub fn parse(text: &str) -> Option<Weather> {
        let numbers: Vec<u32> = text.split(',').map_while(|number| number.parse().ok()).collect();
        let [delay_ms, reorder_pct, loss_permille] = numbers[..] else { return None };
        Some(Weather { delay_ms, reorder_pct, loss_permille })
    }

    /// For netem.
    pub fn netem(&self) -> String {
        let Weather { delay_ms, reorder_pct, .. } = *self;
        let reorder = if reorder_pct == 0 { String::new() } else { format!(" reorder {reorder_pct}%") };
        let loss = f64::from(self.loss_permille) / 10.0;
        format!("limit {LIMIT_PACKETS} delay {delay_ms}ms{reorder} loss {loss}% rate {RATE_MBIT_PER_S}mbit")
    }
}
