/** Loads the native library. Not for programs: it may change at any time. */
package org.cci.internal;
