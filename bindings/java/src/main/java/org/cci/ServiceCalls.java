package org.cci;

import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.IntFunction;

/** The calls that a service makes: each begins, and its end is taken once. */
final class ServiceCalls {
    private final Service service;

    ServiceCalls(Service service) {
        this.service = service;
    }

    /** The number of a call that has begun. */
    long begin(ServiceId to, ServiceContent content, Duration timeout, boolean once) {
        if (timeout.isNegative() || timeout.isZero()) {
            throw new IllegalArgumentException("a call has a deadline in the future, and not after " + timeout);
        }
        long ms = timeout.compareTo(Duration.ofMillis(Integer.MAX_VALUE)) > 0 ? Integer.MAX_VALUE : Math.max(1, timeout.toMillis());
        content.enter();
        try (Arena temporary = Arena.ofConfined()) {
            long number = RawCalls.call(
                    service.id().number(), to.number(), content.write(temporary), (int) ms, once ? RawCalls.ONCE : 0);
            if (number == 0) {
                String reason = Raw.lastError();
                service.checkOpen();
                throw new SystemException(Status.NO_BUFFERS, what(to) + ": " + reason);
            }
            return number;
        } finally {
            content.exit();
        }
    }

    /** Waits for the end of a call. If the thread is interrupted, the call goes on, and nobody sees its answer. */
    ServiceMessage await(ServiceId to, long number) throws InterruptedException {
        try {
            return take(to, number);
        } catch (InterruptedException e) {
            discard(to, number);
            throw e;
        }
    }

    private ServiceMessage take(ServiceId to, long number) throws InterruptedException {
        try (Arena temporary = Arena.ofConfined()) {
            MemorySegment call = temporary.allocate(JAVA_LONG);
            MemorySegment fields = temporary.allocate(RawServices.Received.BYTES, Long.BYTES);
            IntFunction<ServiceMessage> look = sliceMs -> {
                call.set(JAVA_LONG, 0, number);
                int code = RawCalls.reply(service.id().number(), call.address(), sliceMs, fields.address());
                return code == RawServices.TIMED_OUT ? null : ended(to, code, fields);
            };
            // The library ends each call soon after its deadline.
            return ServiceWait.until(Intake.deadline(Duration.ofDays(365)), service::checkOpen, look);
        }
    }

    private ServiceMessage ended(ServiceId to, int code, MemorySegment fields) {
        if (code == RawServices.RECEIVED) {
            return ServiceMessage.take(fields, null);
        }
        String reason = Raw.lastError();
        CallException.End end = switch (code) {
            case RawCalls.REFUSED -> CallException.End.REFUSED;
            case RawCalls.TIMED_OUT -> CallException.End.TIMED_OUT;
            case RawCalls.NOT_REACHED -> CallException.End.NOT_REACHED;
            case RawCalls.LOST -> CallException.End.LOST;
            case RawCalls.NOT_FETCHED -> CallException.End.NOT_FETCHED;
            default -> {
                service.checkOpen();
                throw new SystemException(Status.ERROR, what(to) + ": " + reason);
            }
        };
        try (ServiceMessage reply = ServiceMessage.take(fields, null)) {
            byte[] details = reply.itemCount() == 0 ? new byte[0] : reply.item(0).array();
            throw new CallException(end, what(to), details);
        }
    }

    private static String what(ServiceId to) {
        return "calling the service " + to.number();
    }

    /** A future of the end of a call. */
    CompletableFuture<ServiceMessage> future(ServiceId to, long number) {
        CompletableFuture<ServiceMessage> ended = new CompletableFuture<>();
        Thread.startVirtualThread(() -> {
            try {
                ServiceMessage answer = take(to, number);
                if (!ended.complete(answer)) {
                    // The future was cancelled: nobody will close what it would have given.
                    answer.close();
                }
            } catch (InterruptedException e) {
                ended.completeExceptionally(new CompletionException(e));
            } catch (RuntimeException e) {
                ended.completeExceptionally(e);
            }
        });
        return ended;
    }

    /** An end that nobody takes would count as a call under way. */
    private void discard(ServiceId to, long number) {
        future(to, number).cancel(false);
    }
}
