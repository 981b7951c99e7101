/* Three members of a group. */
#include "ripc_check.h"

#define GROUP 30
#define OTHER 31

static void member(struct other *parent)
{
    CHECK(ripc_register_multicast_service_id(GROUP) == 1);
    CHECK(ripc_register_multicast_service_id(OTHER) == 1);
    tell(parent);
    expect_text(GROUP, GROUP, "to all");
    expect_text(GROUP, GROUP, "again");
    CHECK(receive_within(GROUP, 200).result == 2);
    tell(parent);
    await(parent);
}

int main(void)
{
    struct other members[] = {start(member), start(member)};
    CHECK(ripc_register_multicast_service_id(GROUP) == 1);
    for (int at = 0; at < 2; at++)
        await(&members[at]);
    /* The number of a group is no service's, in any process. */
    CHECK(ripc_register_service_id(OTHER) == 0 && strlen(cci_last_error()) > 0);
    /* Members hear of each other within 0.2 s. */
    sleep_ms(1000);
    CHECK(send_text(GROUP, OTHER, "for nobody") == 0);
    CHECK(send_text(GROUP, GROUP, "to all") == 0);
    CHECK(send_text(GROUP, GROUP, "again") == 0);
    CHECK(send_long(GROUP, GROUP, members, 4) == 1);
    for (int at = 0; at < 2; at++)
        await(&members[at]);
    for (int at = 0; at < 2; at++) {
        tell(&members[at]);
        finish(&members[at]);
    }
    puts("ripc_multicast: all well");
    return 0;
}
