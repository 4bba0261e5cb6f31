<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="en">
    <context>
        <name>ChoiceButton</name>
        <message numerus="yes">
            <source>%n message(s)</source>
            <translation>
                <numerusform>%n message</numerusform>
                <numerusform>%n messages</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>ContextMarker</name>
        <message numerus="yes">
            <source>%n message(s) no longer in the model's context</source>
            <translation>
                <numerusform>%n message no longer in the model's context</numerusform>
                <numerusform>%n messages no longer in the model's context</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>ConversationListModel</name>
        <message numerus="yes">
            <source>%n token(s) kept</source>
            <translation>
                <numerusform>%n token kept</numerusform>
                <numerusform>%n tokens kept</numerusform>
            </translation>
        </message>
        <message numerus="yes">
            <source>%n would be read</source>
            <translation>
                <numerusform>%n would be read</numerusform>
                <numerusform>%n would be read</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>Exchange</name>
        <message numerus="yes">
            <source>%n conversation(s) imported</source>
            <translation>
                <numerusform>%n conversation imported</numerusform>
                <numerusform>%n conversations imported</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>HistorySection</name>
        <message numerus="yes">
            <source>%n damaged block(s) dropped</source>
            <translation>
                <numerusform>%n damaged block dropped</numerusform>
                <numerusform>%n damaged blocks dropped</numerusform>
            </translation>
        </message>
        <message numerus="yes">
            <source>Show all %n</source>
            <translation>
                <numerusform>Show all %n</numerusform>
                <numerusform>Show all %n</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>NowSection</name>
        <message numerus="yes">
            <source>Saving, %n write(s) to go</source>
            <translation>
                <numerusform>Saving, %n write to go</numerusform>
                <numerusform>Saving, %n writes to go</numerusform>
            </translation>
        </message>
    </context>
    <context>
        <name>SharedRow</name>
        <message numerus="yes">
            <source>%n not on this machine…</source>
            <translation>
                <numerusform>%n not on this machine…</numerusform>
                <numerusform>%n not on this machine…</numerusform>
            </translation>
        </message>
        <message numerus="yes">
            <source>%n state(s) to be sent.</source>
            <translation>
                <numerusform>%n state to be sent.</numerusform>
                <numerusform>%n states to be sent.</numerusform>
            </translation>
        </message>
        <message numerus="yes">
            <source>Reachable, %n conversation(s).</source>
            <translation>
                <numerusform>Reachable, %n conversation.</numerusform>
                <numerusform>Reachable, %n conversations.</numerusform>
            </translation>
        </message>
    </context>
</TS>
