/**
 * Messages, remote memory and calls between processes, over shared memory, UDP, TCP and raw Ethernet.
 *
 * <p>{@link org.cci.Context#open()} finds the devices of the machine; {@link org.cci.Endpoint} is what a program opens on one
 * of them. {@link org.cci.Connection connections} between endpoints carry {@link org.cci.Message messages} of up to some KiB
 * and operations on {@link org.cci.Region remote memory}. {@link org.cci.Event Events} say what happened.
 * {@link org.cci.Messenger} carries messages of any length, and calls. A {@link org.cci.Service} is found by its name, wherever
 * it is.
 *
 * <p><b>Threads.</b> Every object may be used by any thread at any time, virtual threads included. An endpoint has a lock, which
 * is held during each of its calls and never while one waits or while the program's code runs.
 *
 * <p><b>Memory.</b> What the library lends (messages, its own memory) is shown as {@code MemorySegment} or {@code ByteBuffer}
 * without a copy. A view of what was given back throws {@code IllegalStateException}, as does each use of something closed.
 *
 * <p><b>Errors.</b> A wrong argument is an {@code IllegalArgumentException}, a use at the wrong time an
 * {@code IllegalStateException}. {@link org.cci.PeerException} is the peer's fault or the path's, and
 * {@link org.cci.SystemException} this machine's. What is normal is no exception: a send that finds no room returns false, and
 * a wait that ends without an event returns null.
 *
 * <p>Java 22 or newer is needed, and native access: {@code java --enable-native-access=ALL-UNNAMED}.
 */
package org.cci;
