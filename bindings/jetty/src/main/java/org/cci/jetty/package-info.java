/**
 * Jetty over services of CCI: {@link org.cci.jetty.ServiceConnector} lets a server be reached by the name of a service, beside
 * TCP, and {@link org.cci.jetty.ServiceTransport} lets Jetty's HTTP client reach it. {@link org.cci.jetty.Download} fetches a
 * file though its server is killed and started anew.
 */
package org.cci.jetty;
