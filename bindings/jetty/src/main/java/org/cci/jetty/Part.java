package org.cci.jetty;

import org.cci.ServiceItem;

/**
 * Bytes that are sent as a long item, from where they are.
 *
 * @param item where they are
 * @param owner who has the memory again when the partner has fetched them, or will not
 */
record Part(ServiceItem item, Owner owner) {
    /** Who owns the memory of a part. */
    interface Owner {
        /**
         * The part is sent no more.
         *
         * @param isFetched whether the partner has said that it has the bytes. If not, it may fetch them later, from a buffer that
         *     is closed, too: but the memory must not be written to.
         */
        void release(boolean isFetched);
    }
}
