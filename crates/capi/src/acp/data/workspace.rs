//! Workspaces: memory over all ranks that is read and written like a file.

use super::{Element, number};
use crate::acp::failure::{Result, Wrong, wrong};
use crate::acp::live::{Chunks, Live, call};
use crate::acp::management::address;
use cci_acp::{GlobalAddress, Space, Workspace};
use libc::c_int;

/// What is no descriptor.
const NONE: u64 = u64::MAX;
/// Where the root of the call that makes a workspace is.
const MAKER: u32 = 0;

/// Makes a workspace.
#[unsafe(no_mangle)]
pub extern "C" fn acp_create_ws(size: usize) -> u64 {
    call(NONE, |live| {
        let mut made = Ok(0);
        if live.global.rank() == MAKER {
            let Chunks { first_rank, bytes } = live.chunks;
            let workspace = Workspace::create(&mut live.global, size as u64, bytes, first_rank);
            made = workspace.map(|workspace| workspace.handle().to_bits());
        }
        let handle = live.global.broadcast(MAKER, *made.as_ref().unwrap_or(&0))?;
        made?;
        if handle == 0 {
            return wrong("rank 0 could not make the workspace: a heap is full, or the size is 0");
        }
        Ok(handle)
    })
}

/// Says how workspaces are made from now on.
#[unsafe(no_mangle)]
pub extern "C" fn acp_setparams_ws(proc_start: c_int, size_default: usize) -> c_int {
    call(-1, |live| {
        let first_rank: u32 = number(proc_start)?;
        if first_rank >= live.global.size() || size_default == 0 {
            return wrong("there is no such rank, or chunks have no bytes");
        }
        live.chunks = Chunks { first_rank, bytes: size_default as u64 };
        Ok(0)
    })
}

fn open(live: &Live, wsd: u64) -> Result<Workspace> {
    Ok(Workspace::open(address(live, wsd)?))
}

fn place(live: &Live, ga: u64, size: usize) -> Result<Option<GlobalAddress>> {
    if size == 0 { Ok(None) } else { address(live, ga).map(Some) }
}

fn count(done: u64) -> Result<i64> {
    i64::try_from(done).map_err(|_| Wrong("so many bytes have no number".into()))
}

/// Reads.
#[unsafe(no_mangle)]
pub extern "C" fn acp_read_ws(wsd: u64, ga: u64, size: usize, offset: usize) -> i64 {
    call(-1, |live| {
        let (workspace, to) = (open(live, wsd)?, place(live, ga, size)?);
        let there = workspace.len(&mut live.global)?.saturating_sub(offset as u64).min(size as u64);
        let mut bytes = vec![0; there as usize];
        let done = workspace.read(&mut live.global, offset as u64, &mut bytes)?;
        if let Some(to) = to {
            live.global.write(to, &bytes)?;
        }
        count(done)
    })
}

/// Writes.
#[unsafe(no_mangle)]
pub extern "C" fn acp_write_ws(wsd: u64, ga: u64, size: usize, offset: usize) -> i64 {
    call(-1, |live| {
        let workspace = open(live, wsd)?;
        let there = workspace.len(&mut live.global)?.saturating_sub(offset as u64).min(size as u64);
        let bytes = Element { ga, size: there as usize }.fetch(live)?;
        count(workspace.write(&mut live.global, offset as u64, &bytes)?)
    })
}

/// Frees a workspace.
#[unsafe(no_mangle)]
pub extern "C" fn acp_destroy_ws(wsd: u64) -> c_int {
    call(-1, |live| {
        // What others still read or write is done.
        live.global.sync()?;
        let mut freed = Ok(());
        if live.global.rank() == MAKER {
            freed = open(live, wsd).and_then(|workspace| Ok(workspace.destroy(&mut live.global)?));
        }
        let is_freed = live.global.broadcast(MAKER, u64::from(freed.is_ok()))?;
        freed?;
        if is_freed == 0 {
            return wrong("rank 0 could not free the workspace: there is none, or not any more");
        }
        Ok(0)
    })
}
