//! The contexts of this process and their handlers (CCS section 3.3). Each library of a program has a context with its own
//! handlers.

use crate::error::{AmError, Result};
use crate::limits::{CONTEXT_NAME_BYTES_MAX, CONTEXTS_MAX};
use crate::wire::ContextName;
use std::collections::HashMap;

/// Identifies a context in this process.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Context(u16);

/// A handler's number, which has a meaning to the program that registered it.
pub type Handler = u64;

#[derive(Default)]
pub(crate) struct Contexts {
    all: Vec<State>,
    by_name: HashMap<ContextName, Context>,
    unnamed: u32,
}

struct State {
    name: ContextName,
    is_open: bool,
    handlers: Vec<Option<Handler>>,
    /// Handlers of large messages, which have their own numbers.
    large_handlers: Vec<Option<Handler>>,
}

/// Distinguishes the two sets of handlers' numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Messages,
    Large,
}

/// The result of a search for a handler.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Handler(Context, Handler),
    /// The context or the handler does not exist yet.
    NotYet,
}

impl Context {
    pub(crate) fn number(self) -> u16 {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn of_number(number: u16) -> Context {
        Context(number)
    }
}

impl Contexts {
    pub fn add_unnamed(&mut self) -> Result<Context> {
        let context = self.add(ContextName::Unnamed(self.unnamed))?;
        self.unnamed += 1;
        Ok(context)
    }

    /// Returns the context of this name, and makes it if there is none that was not freed.
    pub fn add_named(&mut self, name: &str) -> Result<Context> {
        if name.len() > CONTEXT_NAME_BYTES_MAX {
            return Err(AmError::Argument("a name of a context has up to 256 bytes"));
        }
        let name = ContextName::Named(name.to_owned());
        match self.by_name.get(&name) {
            Some(context) if self.check(*context).is_ok() => Ok(*context),
            _ => self.add(name),
        }
    }

    fn add(&mut self, name: ContextName) -> Result<Context> {
        if self.all.len() >= CONTEXTS_MAX {
            return Err(AmError::Full("a process makes up to 4,096 contexts, freed ones included"));
        }
        let context = Context(self.all.len() as u16);
        self.by_name.insert(name.clone(), context);
        self.all.push(State { name, is_open: true, handlers: Vec::new(), large_handlers: Vec::new() });
        Ok(context)
    }

    /// Frees a context. Messages for it are discarded from now on, until there is another one of its name.
    pub fn free(&mut self, context: Context) -> Result<()> {
        let state = self.open_mut(context)?;
        state.is_open = false;
        state.handlers = Vec::new();
        state.large_handlers = Vec::new();
        Ok(())
    }

    pub fn register(&mut self, context: Context, space: Space, id: u16, handler: Handler) -> Result<()> {
        let state = self.open_mut(context)?;
        let handlers = match space {
            Space::Messages => &mut state.handlers,
            Space::Large => &mut state.large_handlers,
        };
        let id = usize::from(id);
        if handlers.len() <= id {
            handlers.resize(id + 1, None);
        }
        match handlers.get_mut(id) {
            Some(free @ None) => {
                *free = Some(handler);
                Ok(())
            }
            _ => Err(AmError::Exists),
        }
    }

    /// The name of a context that is open.
    #[inline]
    pub fn name(&self, context: Context) -> Result<&ContextName> {
        match self.all.get(usize::from(context.0)) {
            Some(State { name, is_open: true, .. }) => Ok(name),
            _ => Err(AmError::State("this context was freed, or never made")),
        }
    }

    #[inline]
    pub fn check(&self, context: Context) -> Result<()> {
        self.name(context).map(drop)
    }

    #[inline(always)]
    pub fn is_open(&self, context: Context) -> bool {
        self.all.get(usize::from(context.0)).is_some_and(|state| state.is_open)
    }

    pub fn by_name(&self, name: &ContextName) -> Option<Context> {
        self.by_name.get(name).copied()
    }

    /// The handler of a message that is not a large one. `None` if there is none yet, or its context was freed.
    #[inline(always)]
    pub fn handler(&self, context: Context, id: u16) -> Option<Handler> {
        // A context that was freed has none.
        *self.all.get(usize::from(context.0))?.handlers.get(usize::from(id))?
    }

    /// The handler of a message. `None` if its context was freed.
    #[inline]
    pub fn find(&self, context: Context, space: Space, id: u16) -> Option<Found> {
        let state = self.all.get(usize::from(context.0)).filter(|state| state.is_open)?;
        let handlers = match space {
            Space::Messages => &state.handlers,
            Space::Large => &state.large_handlers,
        };
        let handler = handlers.get(usize::from(id)).copied().flatten();
        Some(handler.map_or(Found::NotYet, |handler| Found::Handler(context, handler)))
    }

    fn open_mut(&mut self, context: Context) -> Result<&mut State> {
        let state = self.all.get_mut(usize::from(context.0)).filter(|state| state.is_open);
        state.ok_or(AmError::State("this context was freed, or never made"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_name_contexts() {
        let mut contexts = Contexts::default();
        let (one, two) = (contexts.add_unnamed().unwrap(), contexts.add_unnamed().unwrap());
        let named = contexts.add_named("mpi").unwrap();
        assert_eq!(contexts.add_named("mpi").unwrap(), named);
        assert!(one != two && one != named);
        contexts.register(one, Space::Messages, 65_535, 7).unwrap();
        assert!(matches!(contexts.register(one, Space::Messages, 65_535, 8), Err(AmError::Exists)));
        assert_eq!(contexts.find(one, Space::Messages, 65_535), Some(Found::Handler(one, 7)));
        assert_eq!(contexts.find(two, Space::Messages, 65_535), Some(Found::NotYet));
        assert_eq!(contexts.find(one, Space::Large, 65_535), Some(Found::NotYet), "numbers of their own");
        contexts.register(one, Space::Large, 65_535, 9).unwrap();
        assert_eq!(contexts.find(one, Space::Large, 65_535), Some(Found::Handler(one, 9)));
        contexts.free(named).unwrap();
        assert_eq!(contexts.find(named, Space::Messages, 1), None);
        assert!(matches!(contexts.free(named), Err(AmError::State(_))));
        // Its name can be used by another context. Contexts without a name are counted separately.
        assert_eq!(contexts.by_name(&ContextName::Unnamed(1)), Some(two));
        assert!(contexts.add_named(&"n".repeat(257)).is_err());
    }

    #[test]
    fn a_freed_name_is_another_context() {
        let mut contexts = Contexts::default();
        let named = contexts.add_named("mpi").unwrap();
        contexts.free(named).unwrap();
        let again = contexts.add_named("mpi").unwrap();
        assert_ne!(again, named);
        contexts.register(again, Space::Messages, 0, 1).unwrap();
    }

    #[test]
    fn there_is_a_limit() {
        let mut contexts = Contexts::default();
        for _ in 0..CONTEXTS_MAX {
            contexts.add_unnamed().unwrap();
        }
        assert!(matches!(contexts.add_unnamed(), Err(AmError::Full(_))));
        assert!(matches!(contexts.add_named("one more"), Err(AmError::Full(_))));
    }
}
